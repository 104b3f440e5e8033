"""What CMake and pkg-config read of a package."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.package.places import Place
from tilec.package.templates import render
from tilec.package.text.escape import cmake_string, pkg_config

#: How CMake calls systems and, in small letters, processors.
_SYSTEMS = {"linux": "Linux", "macos": "Darwin", "windows": "Windows"}
_PROCESSORS = {"x86_64": "x86_64|amd64", "aarch64": "aarch64|arm64"}


def build_files(places: Sequence[Place], version: str) -> dict[str, str]:
    """The texts by their paths in the package."""
    name = places[0].name
    folder = f"lib/cmake/{name}/{name}"
    return {
        **{f"{each.folder}/pkgconfig/{name}.pc": _pkg_config(each, version) for each in places},
        f"{folder}Config.cmake": render(
            "Config.cmake", version=cmake_string(version), name=name, files=_cmake_files(places)
        ),
        f"{folder}ConfigVersion.cmake": render(
            "ConfigVersion.cmake", version=cmake_string(version), name=name
        ),
    }


def _pkg_config(place: Place, version: str) -> str:
    up = "/".join([".."] * (place.folder.count("/") + 2))
    libraries = " ".join(f"-l{library}" for library in place.host.system.libraries)
    return render(
        "package.pc",
        name=place.name,
        version=pkg_config(version),
        prefix=f"${{pcfiledir}}/{up}",
        folder=place.folder,
        libraries=libraries,
    )


def _cmake_files(places: Sequence[Place]) -> str:
    """The statements that name the files of the host that is built for; of the one host, without a look."""
    if len(places) == 1:
        return _cmake_names(places[0], "")
    text = "".join(
        f"{'if' if number == 0 else 'elseif'}({_cmake_condition(place)})\n{_cmake_names(place, '  ')}"
        for number, place in enumerate(places)
    )
    name, known = places[0].name, ", ".join(place.host.folder for place in places)
    return _CMAKE_PROCESSOR.format(name=name) + text + _CMAKE_NO_HOST.format(name=name, known=known)


_CMAKE_PROCESSOR = """\
set(_{name}_processor "${{CMAKE_SYSTEM_PROCESSOR}}")
if(APPLE AND CMAKE_OSX_ARCHITECTURES)
  set(_{name}_processor "${{CMAKE_OSX_ARCHITECTURES}}")
endif()
string(TOLOWER "${{_{name}_processor}}" _{name}_processor)
"""
_CMAKE_NO_HOST = """\
else()
  set({name}_FOUND FALSE)
  set({name}_NOT_FOUND_MESSAGE "the package is for {known}")
  return()
endif()
"""


def _cmake_condition(place: Place) -> str:
    system, processors = _SYSTEMS[place.host.system.name], _PROCESSORS[place.host.arch]
    return f'CMAKE_SYSTEM_NAME STREQUAL "{system}" AND _{place.name}_processor MATCHES "^({processors})$"'


def _cmake_names(place: Place, indent: str) -> str:
    libraries = ";".join(place.host.system.libraries)
    values = {
        "library": place.library,
        "linked": place.linked if place.linked != place.library else "",
        "soname": place.loaded if place.host.system.name != "windows" else "",
        "archive": place.archive,
        "libraries": libraries,
    }
    return "".join(f'{indent}set(_{place.name}_{key} "{value}")\n' for key, value in values.items())
