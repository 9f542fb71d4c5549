"""Boards: the MIG shapes and the memory of NVIDIA's GPUs, for planning without the hardware.

A node's agent reports shapes from the driver, and those win: floor-swept boards and driver
versions differ. Where a driver's listings vary, the lower figure is here, so that what is
planned also fits. Names are those NVML returns; ids are PCI device ids of vendor 10de.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from allocator.model.board import Board, Profile
from allocator.model.units import MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One product."""

    name: str  # as NVML returns it
    memory: MiB  # total, as NVML returns it
    board: Board | None = None  # None: no MIG, or profiles unknown
    pci: tuple[int, ...] = ()  # PCI device ids
    also: frozenset[str] = frozenset()  # words people use for it that its name lacks


def bare_name(product: str) -> str:
    """Return *product* without leading ``NVIDIA``, which some drivers omit and Volcano repeats."""
    rest = product.strip()
    while rest.startswith(("NVIDIA ", "NVIDIA-")):
        rest = rest[len("NVIDIA ") :].lstrip()
    return rest


def words_of(product: str) -> frozenset[str]:
    """Return the words of a product name regardless of case, order and separators."""
    return frozenset(re.split(r"[\s_-]+", product.upper())) - {"NVIDIA", ""}


def model_named(product: str) -> Model | None:
    """Return the model with exactly this product name."""
    return _BY_BARE_NAME.get(bare_name(product))


def board_named(product: str) -> Board | None:
    """Return the board of the model with exactly this product name."""
    model = model_named(product)
    return None if model is None else model.board


def board_of_pci(device_id: int) -> Board | None:
    """Return the board with this 16-bit PCI device id, such as ``0x20B0``."""
    return _BY_PCI.get(device_id)


@lru_cache(maxsize=1024)
def models_like(text: str) -> tuple[Model, ...]:
    """Return the models that *text* names loosely, as people and ConfigMaps write them.

    If *text* has exactly the words of a model's name, only models of that name are returned
    ("H20" is not "H20-3e"); otherwise every model that has all its words ("A100-PCIE-80GB").
    """
    wanted = words_of(text)
    exact = tuple(m for m in MODELS.values() if words_of(m.name) == wanted)
    return exact or tuple(m for m in MODELS.values() if wanted and wanted <= _all_words(m))


def _all_words(model: Model) -> frozenset[str]:
    return words_of(model.name) | model.also


def least_memory(total: MiB, size: int) -> MiB:
    """Return MiB to plan with for *size* of 8 slots where no driver listing is known.

    The share is below the least seen on any listed 8-slot board (GB200, H200, A100, H100 NVL).
    """
    percent = {1: 86, 2: 91, 4: 98, 8: 98}[size]
    return MiB(total * size * percent // 800)


# Every 8-slot listing seen uses the same ids and placements (Blackwell's placements are
# assumed). Per row: compute slices, attribute, id, size, starts, limit.
_EIGHTHS: Final = (
    (1, "", 19, 1, (0, 1, 2, 3, 4, 5, 6), None),
    (1, "+me", 20, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    (1, "", 15, 2, (0, 2, 4, 6), None),  # double memory
    (2, "", 14, 2, (0, 2, 4), None),
    (3, "", 9, 4, (0, 4), None),
    (4, "", 5, 4, (0,), None),
    (7, "", 0, 8, (0,), None),
)


class _EighthsRow(NamedTuple):
    """The figures in which 8-slot boards differ."""

    gb: tuple[int, int, int, int]  # in profile names, for 1, 2, 4 and 8 slots
    mib: tuple[int | None, int | None, int | None, int | None]  # alike; None: unknown
    sms: tuple[int, int, int, int, int, int]  # of 1g, 1g with double memory, 2g, 3g, 4g and 7g


_UNKNOWN: Final = (None, None, None, None)
_AMPERE: Final = (14, 14, 28, 42, 56, 98)
_HOPPER: Final = (16, 26, 32, 60, 64, 132)
_A100_40: Final = _EighthsRow((5, 10, 20, 40), (4864, 9856, 19968, 40192), _AMPERE)
_A100_80: Final = _EighthsRow((10, 20, 40, 80), (9728, 19968, 40192, 80896), _AMPERE)
_H100_80: Final = _EighthsRow((10, 20, 40, 80), (9984, 20096, 40448, 81152), _HOPPER)
_H100_94: Final = _EighthsRow((12, 24, 47, 94), (10880, 22016, 47232, 94848), _HOPPER)
_H200: Final = _EighthsRow((18, 35, 71, 141), (16384, 33024, 71168, 143104), _HOPPER)
# Partly derived from here on. Unknown MiB: least_memory. Unknown multiprocessors: those of the
# nearest listed board times the ratio of whole boards (of 2g where only that is listed), rounded
# down to pairs, in which they are built; 7g has all of them.
_H100_PCIE: Final = _EighthsRow(_H100_80.gb, _H100_80.mib, (12, 22, 26, 50, 54, 114))
_H100_96: Final = _EighthsRow((12, 24, 48, 96), _UNKNOWN, _HOPPER)
_A100_96: Final = _EighthsRow(_H100_96.gb, _UNKNOWN, _AMPERE)
_H20: Final = _EighthsRow(_H100_96.gb, _UNKNOWN, (8, 14, 18, 34, 36, 78))
_H20_3E: Final = _EighthsRow(_H200.gb, _H200.mib, _H20.sms)
_GH200_144: Final = _EighthsRow((18, 36, 72, 144), (17920, 36096, None, None), _HOPPER)
_B200: Final = _EighthsRow((23, 45, 90, 180), (20992, 45312, None, None), (18, 30, 36, 66, 72, 148))
_GB200: Final = _EighthsRow(
    (23, 47, 93, 186), (20480, 46592, None, None), (18, 32, 38, 70, 76, 152)
)
_B300: Final = _EighthsRow((34, 67, 135, 269), _UNKNOWN, _B200.sms)
_GB300: Final = _EighthsRow((35, 70, 139, 278), _UNKNOWN, _GB200.sms)
_MIG_IN_EIGHTHS: Final[tuple[tuple[str, tuple[int, ...], int, _EighthsRow, str], ...]] = (
    ("NVIDIA A100-SXM4-40GB", (0x20B0,), 40536, _A100_40, ""),
    ("NVIDIA A100-PCIE-40GB", (0x20F1,), 40536, _A100_40, ""),
    ("NVIDIA A800-SXM4-40GB", (0x20BD,), 40536, _A100_40, ""),
    ("NVIDIA A800 40GB Active", (0x20F6,), 40536, _A100_40, ""),
    ("NVIDIA A100-SXM4-80GB", (0x20B2,), 81251, _A100_80, ""),
    ("NVIDIA A100 80GB PCIe", (0x20B5,), 80994, _A100_80, ""),
    ("NVIDIA A800-SXM4-80GB", (0x20F3,), 81251, _A100_80, ""),
    ("NVIDIA A800 80GB PCIe", (0x20F5,), 80994, _A100_80, ""),
    ("NVIDIA A800 80GB PCIe LC", (), 80994, _A100_80, ""),
    ("NVIDIA PG506-232", (0x20B6,), 97871, _A100_96, ""),
    ("NVIDIA H100 80GB HBM3", (0x2330,), 81559, _H100_80, "SXM5"),
    ("NVIDIA H800", (0x2324,), 81559, _H100_80, "SXM5"),
    ("NVIDIA H100 PCIe", (0x2331,), 81559, _H100_PCIE, ""),
    ("NVIDIA H800 PCIe", (0x2322,), 81559, _H100_PCIE, ""),
    ("NVIDIA H100 NVL", (0x2321,), 95830, _H100_94, ""),
    ("NVIDIA H800 NVL", (0x233A,), 95830, _H100_94, ""),
    ("NVIDIA H100 96GB HBM3", (0x233D,), 97871, _H100_96, "SXM5"),  # name not confirmed
    ("NVIDIA GH200 480GB", (0x2342,), 97871, _H100_96, ""),
    ("NVIDIA GH200 120GB", (), 97871, _H100_96, ""),
    ("NVIDIA H20", (0x2329,), 97871, _H20, ""),
    ("NVIDIA H20-3e", (0x232C,), 143771, _H20_3E, ""),
    ("NVIDIA H200", (0x2335,), 143771, _H200, "SXM5"),
    ("NVIDIA H200 NVL", (0x233B,), 143771, _H200, ""),
    ("NVIDIA GH200 144G HBM3e", (0x2348,), 146831, _GH200_144, ""),
    ("NVIDIA B200", (0x2901,), 183359, _B200, ""),
    ("NVIDIA GB200", (0x2941,), 189471, _GB200, ""),
    ("NVIDIA B300 SXM6 AC", (0x3182,), 275040, _B300, ""),
    ("NVIDIA GB300", (0x31C2,), 284208, _GB300, ""),
)
# Per row: profile, id, MiB, multiprocessors, size, starts, limit.
_Row = tuple[str, int, int, int, int, tuple[int, ...], int | None]
_A30: Final[tuple[_Row, ...]] = (
    ("1g.6gb", 14, 5836, 14, 1, (0, 1, 2, 3), None),
    ("1g.6gb+me", 21, 5836, 14, 1, (0, 1, 2, 3), 1),
    ("2g.12gb", 5, 11672, 28, 2, (0, 2), None),
    ("2g.12gb+me", 6, 11672, 28, 2, (0, 2), 1),
    ("4g.24gb", 0, 23344, 56, 4, (0,), None),
)
# The driver lets only -me profiles stand beside +me.all, which no limit of one profile says:
# that check is left to the driver.
_PRO_6000: Final[tuple[_Row, ...]] = (
    ("1g.24gb", 14, 23680, 46, 3, (0, 3, 6, 9), None),
    ("1g.24gb+me", 21, 23680, 46, 3, (0, 3, 6, 9), 1),
    ("1g.24gb+gfx", 47, 23680, 46, 3, (0, 3, 6, 9), None),
    ("1g.24gb+me.all", 65, 23680, 46, 3, (0, 3, 6, 9), 1),
    ("1g.24gb-me", 67, 23680, 46, 3, (0, 3, 6, 9), None),
    ("2g.48gb", 5, 48512, 94, 6, (0, 6), None),
    ("2g.48gb+gfx", 35, 48512, 94, 6, (0, 6), None),
    ("2g.48gb+me.all", 64, 48512, 94, 6, (0, 6), 1),
    ("2g.48gb-me", 66, 48512, 94, 6, (0, 6), None),
    ("4g.96gb", 0, 97280, 188, 12, (0,), None),
    ("4g.96gb+gfx", 32, 97280, 188, 12, (0,), None),
)
_MIG_OTHERWISE: Final[tuple[tuple[str, tuple[int, ...], int, int, tuple[_Row, ...]], ...]] = (
    ("NVIDIA A30", (0x20B7,), 24258, 4, _A30),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (0x2BB5,), 97887, 12, _PRO_6000),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (0x2BB1,), 97887, 12, _PRO_6000),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", (0x2BB4,), 97887, 12, _PRO_6000),
)
# No MIG, or (A100-SXM-64GB, RTX PRO 5000 and 4500) no placements known: these need an agent.
_WITHOUT_BOARD: Final = (
    ("NVIDIA A100-SXM-64GB", 65536),
    ("NVIDIA RTX PRO 5000 Blackwell", 48935),
    ("NVIDIA RTX PRO 4500 Blackwell", 32623),
    ("Tesla P4", 7680),
    ("Tesla P40", 22919),
    ("Tesla P100-PCIE-16GB", 16276),
    ("Tesla P100-SXM2-16GB", 16276),
    ("Tesla V100-PCIE-16GB", 16160),
    ("Tesla V100-SXM2-16GB", 16160),
    ("Tesla V100-PCIE-32GB", 32480),
    ("Tesla V100-SXM2-32GB", 32480),
    ("Tesla V100S-PCIE-32GB", 32480),
    ("Tesla T4", 15360),
    ("NVIDIA A2", 15356),
    ("NVIDIA A10", 23028),
    ("NVIDIA A10G", 23028),
    ("NVIDIA A16", 15356),
    ("NVIDIA A40", 46068),
    ("NVIDIA L4", 23034),
    ("NVIDIA L40", 46068),
    ("NVIDIA L40S", 46068),
    ("NVIDIA RTX A4000", 16376),
    ("NVIDIA RTX A5000", 24564),
    ("NVIDIA RTX A6000", 49140),
    ("NVIDIA RTX 6000 Ada Generation", 49140),
    ("NVIDIA GeForce RTX 3090", 24576),
    ("NVIDIA GeForce RTX 4090", 24564),
    ("NVIDIA GeForce RTX 5090", 32607),
)


def _in_eighths(total: MiB, cut: _EighthsRow) -> Iterator[Profile]:
    sizes = (1, 2, 4, 8)
    gb = dict(zip(sizes, cut.gb, strict=True))
    mib = dict(zip(sizes, cut.mib, strict=True))
    # +me has the multiprocessors of its plain sibling
    for row, sms in zip(_EIGHTHS, (cut.sms[0], *cut.sms), strict=True):
        slices, attribute, id_, size, starts, limit = row
        yield Profile(
            name=f"{slices}g.{gb[size]}gb{attribute}",
            id=id_,
            memory=MiB(mib[size] or least_memory(total, size)),
            sms=sms,
            size=size,
            starts=starts,
            limit=limit,
        )


def _profile(row: _Row) -> Profile:
    name, id_, mib, sms, size, starts, limit = row
    return Profile(
        name=name, id=id_, memory=MiB(mib), sms=sms, size=size, starts=starts, limit=limit
    )


def _models() -> Iterator[Model]:
    for name, pci, mib, cut, also in _MIG_IN_EIGHTHS:
        total = MiB(mib)
        board = Board(name=name, slots=8, profiles=tuple(_in_eighths(total, cut)))
        words = frozenset({f"{cut.gb[3]}GB", *also.split()})
        yield Model(name=name, memory=total, board=board, pci=pci, also=words)
    for name, pci, mib, slots, rows in _MIG_OTHERWISE:
        board = Board(name=name, slots=slots, profiles=tuple(map(_profile, rows)))
        yield Model(name=name, memory=MiB(mib), board=board, pci=pci)
    for name, mib in _WITHOUT_BOARD:
        yield Model(name=name, memory=MiB(mib))


MODELS: Final[Mapping[str, Model]] = MappingProxyType({m.name: m for m in _models()})
_BY_BARE_NAME: Final = {bare_name(name): model for name, model in MODELS.items()}
_BY_PCI: Final = {id_: model.board for model in MODELS.values() for id_ in model.pci}
