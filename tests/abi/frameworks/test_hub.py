"""`tilec build --hub`: the `kernels` package of Hugging Face loads the folder, with operators and layers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import sample_spec

from tilec.errors import PackageError
from tilec.package.hub.folder import VARIANT, write_hub
from tilec.package.hub.layers import layers_of
from tilec.package.hub.names import hub_name
from tilec.package.model import PackageSpec
from tilec.package.write import BuildReport
from tilec.targets import native_host

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels", reason="the kernels package of PyPI is not installed")


@pytest.fixture(scope="module")
def folder(sample: BuildReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the hub, alone: nothing of the package around it is used."""
    package = tmp_path_factory.mktemp("package") / "sample"
    shutil.copytree(sample.out_dir, package, symlinks=True)
    report = replace(sample, out_dir=package, library=package / "lib" / sample.library.name)
    spec = replace(sample_spec(native_host()), license="apache-2.0")
    write_hub([spec], [report])
    made = write_hub([spec], [report])  # once more, in place of the first
    return Path(shutil.move(made, tmp_path_factory.mktemp("hub") / "sample"))


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    return kernels.get_local_kernel(folder)


def test_it_is_loaded_as_the_hub_loads_it(loaded: Any, folder: Path) -> None:
    a, b = torch.randn(5, 8), torch.randn(8, 16)
    torch.testing.assert_close(loaded.matmul(a, b, alpha=0.5), 0.5 * a @ b)
    c = torch.empty(5, 16)
    loaded.library.kernels["matmul"](a, b, c, 1.0)
    torch.testing.assert_close(c, a @ b)
    found = next(each for each in kernels.get_loaded_kernels() if each.module is loaded)
    assert (str(found.metadata.name), found.metadata.license) == ("sample", "apache-2.0")
    assert found.metadata.version == 1
    assert found.metadata.id == loaded.__name__


def test_it_is_loaded_without_a_license_too(sample: BuildReport, tmp_path: Path) -> None:
    package = tmp_path / "sample"
    shutil.copytree(sample.out_dir, package, symlinks=True)
    report = replace(sample, out_dir=package, library=package / "lib" / sample.library.name)
    made = write_hub([replace(sample_spec(native_host()), version="2.0.0")], [report])
    metadata = json.loads((made / VARIANT / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["license"] == "unknown"
    assert "license" not in (made / "README.md").read_text(encoding="utf-8").splitlines()[1]
    kernels.get_local_kernel(made)


def test_operators_have_a_namespace_of_this_build(loaded: Any) -> None:
    name = loaded.add_op_namespace_prefix("matmul")
    assert name == f"_sample_{loaded.library.build_id}::matmul"
    compiled = torch.compile(lambda a, b: loaded.matmul(a, b) + 1, backend="eager", fullgraph=True)
    a, b = torch.randn(5, 8), torch.randn(8, 16)
    torch.testing.assert_close(compiled(a, b), a @ b + 1)
    torch.library.opcheck(loaded.ops.normalize.default, (torch.rand(6, 7),))


def test_the_digests_are_those_of_the_files(loaded: Any, folder: Path) -> None:
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    digest = Metadata.read_from_file(folder / VARIANT / "metadata.json").digest
    assert digest is not None
    digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, folder / VARIANT))
    assert "layers.py" in digest.files


def test_a_layer_takes_the_place_of_a_models_own(folder: Path) -> None:
    @kernels.use_kernel_forward_from_hub("Product")
    class Product(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.randn(8, 16)

        def forward(self, x: Any) -> Any:
            raise AssertionError("the model's own forward ran")

    mapping = {"Product": {"cpu": kernels.LocalLayerRepository(folder, layer_name="Product")}}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        mode = kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE
        model = kernels.kernelize(Product(), mode=mode, device="cpu", use_fallback=False)
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(model(x), x @ model.weight)
    torch.testing.assert_close(model(x[0].T.contiguous().T), x[0] @ model.weight)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), x @ model.weight)
    with pytest.raises(
        TypeError, match=r"layer Product has kernels for torch\.float32, not for torch\.int64"
    ):
        model(x.long())


def test_the_card_tells_what_there_is(folder: Path) -> None:
    head, _, text = (folder / "README.md").read_text().removeprefix("---\n").partition("---\n")
    assert head.splitlines()[:2] == ["license: apache-2.0", "library_name: kernels"]
    assert "| `matmul` | `A float32[M, K]`, `B float32[K, N]`, `alpha float16` | `C float32[M, N]` |" in text
    assert "| `Product` | `A` | `self.weight` |" in text
    assert 'get_kernel("<user>/sample", version=1)' in text


def changed(spec: PackageSpec, **tables: Any) -> PackageSpec:
    """With another layer table for the product."""
    layer = {"name": "Product", "forward": ("A",), "members": {"B": "weight"}, **tables}
    return replace(
        spec,
        kernels=tuple(replace(each, layer=layer) if each.name == "matmul" else each for each in spec.kernels),
    )


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"members": {}}, "B is in neither forward nor members"),
        ({"forward": ("A", "B")}, "B stands there twice"),
        ({"forward": ("A", "Z")}, "Z is no input of it"),
        ({"forward": ("alpha",), "members": {"A": "a", "B": "b"}}, "forward takes no tensor"),
    ],
)
def test_a_layer_that_does_not_fit(tables: dict[str, Any], why: str) -> None:
    with pytest.raises(PackageError, match="cannot be the layer 'Product'") as caught:
        layers_of(changed(sample_spec(native_host()), **tables))
    assert caught.value.why == why


def test_one_layer_of_two_kernels_for_one_type() -> None:
    spec = sample_spec(native_host())
    twin = next(replace(each, name="other") for each in spec.kernels if each.name == "matmul")
    with pytest.raises(PackageError) as caught:
        layers_of(replace(spec, kernels=(*spec.kernels, twin)))
    assert caught.value.why == "matmul is that layer for the same element type"


@pytest.mark.parametrize(("name", "there"), [("my_engine", "my-engine"), ("Llm2_", "llm2")])
def test_names_of_the_hub(name: str, there: str) -> None:
    assert hub_name(name) == there


def test_a_name_that_the_hub_does_not_take() -> None:
    with pytest.raises(PackageError, match="no name on the kernel hub"):
        hub_name("_1")


def test_metadata_names_a_backend(folder: Path) -> None:
    metadata = json.loads((folder / VARIANT / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cpu"}
    assert metadata["python-depends"] == []
