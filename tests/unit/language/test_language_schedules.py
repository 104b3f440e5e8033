"""Schedule keys of a config: part of the schedule of launches, checked before anything is lowered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.errors import SourceError, SourceValueError
from tilec.ir.guards import Guard
from tilec.ir.schedule import FAMILIES, KEYS, Schedule, table
from tilec.language.frontend.elaborate import elaborate, load_entry

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"


def hints(**config: object) -> dict[str, object]:
    kernel = elaborate(
        load_entry("gemm.py:matmul", KERNELS),
        name="matmul",
        dims=dict.fromkeys("MNK", Guard()),
        args={},
        config=config,
    )
    return kernel.launches[0].schedule.given


def test_schedule_keys_reach_the_launches():
    assert hints(bM=64, swap=True, cluster=[2, 1]) == {"swap": True, "cluster": (2, 1)}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"split_k": 0}, "give a positive integer"),
        ({"swap": 1}, "give true or false"),
        ({"cluster": [1, 2, 1, 1]}, "give a positive integer or up to three of them"),
        ({"group_order": "z"}, 'give "row" or "column"'),
        ({"evict_first": "C"}, "give a list of tensor names"),
    ],
)
def test_values_of_another_form_are_refused(config, said):
    with pytest.raises(SourceValueError) as caught:
        hints(**config)
    assert said in caught.value.remedy


def test_tensors_that_are_not_there_are_refused():
    with pytest.raises(SourceValueError, match="evict_first names D"):
        hints(evict_first=["D"])


def test_near_names_are_offered():
    with pytest.raises(SourceError) as caught:
        hints(split=2)
    assert caught.value.remedy == "did you mean split_k?"


def test_the_reference_names_every_key_as_its_field_does():
    pages = "".join(page.read_text() for page in (Path(__file__).parents[3] / "docs").glob("*.md"))
    assert table() in pages


def test_a_config_wins_over_the_author():
    asked = Schedule(use_swizzle=(10, "column"), cluster_dims=(1, 2), group=4, cluster=2)
    assert (asked.band, asked.band_order, asked.clusters) == (4, "column", (2,))
    assert Schedule().given == {}


def test_every_family_says_the_keys_that_it_does_not_obey():
    everything = Schedule(swap=True, unroll=1, scale_sums=False, pdl=True)
    assert everything.without_effect("products") == [
        "scale_sums = False has no effect on products without packed weights"
    ]
    assert len(everything.without_effect("threads")) == 3
    assert {family for key in KEYS.values() for family in key.families} == set(FAMILIES)


def test_cpus_say_the_keys_of_gpus():
    asked = Schedule(split_k=4, spread_k=6, road="amx", use_swizzle=(10, "row"))
    assert asked.without_effect_on_cpus() == ["split_k = 4 has no effect on CPUs"]
