"""Merkle mountain ranges: nodes, roots, growth, and proofs of the last and of older leaves."""

from __future__ import annotations

from veen_cases.formulas import cbor, mmr_root, peaks, siblings, subtrees, tree
from veen_cases.known import Case, Disagreement, known, own, reference


def mmr_nodes() -> list[Case]:
    left, right = b"\x11" * 32, b"\x22" * 32
    node = known(
        tree([left, right], "veen/mmr-node"),
        "139bd55e8a333c11b9bc6d84b339c81fba08e30f4cf5ad6d9c9838cc40583a4f",
    )
    return [reference("node of 11 and 22", left=left, right=right, node=node)]


def mmr_roots() -> list[Case]:
    roots = {
        (0xAA, 0xBB): "2b22d876b09f52a28330d4b0da1077197a63b6997189d92b50cda845fe8ce0ae",
        (0x11, 0x22, 0x33): "68151d9febdbbbd032781dbcb986ea068e573f0a1f000f5b039dbe3bbd04ed23",
        (0x11,): "11" * 32,
    }
    return [
        reference(
            f"root of {len(fill)} peaks",
            peaks=[bytes([n]) * 32 for n in fill],
            root=known(mmr_root([bytes([n]) * 32 for n in fill]), literal),
        )
        for fill, literal in roots.items()
    ]


def mmr_growth() -> list[Case]:
    """Each prefix of two runs of leaves, with root, peaks and the proof of its last leaf."""
    short = {
        1: "11" * 32,
        2: "139bd55e8a333c11b9bc6d84b339c81fba08e30f4cf5ad6d9c9838cc40583a4f",
        3: "0d7f9fccb684b29acfe6d51aa0f445eef662a75f2d8225337bdaadd9550149a5",
    }
    long = {
        1: "01" * 32,
        2: "fb9a1da1f46ed778af6d75756f52189e45367d04d9e4912c5beea6af79ca29b8",
        3: "3cf59a0f4e91a1502b10b04316f65e9127a54eec69432cdb5822a20a144f443e",
        4: "491fedcb7f3a4b27a5a5aeb15a392cd5d496c0798a87577abf589f94f885b1a4",
    }
    proofs = {
        2: """a4010102582002020202020202020202020202020202020202020202020202020202020202020381a201
        0102582001010101010101010101010101010101010101010101010101010101010101010480""",
        3: """a40101025820030303030303030303030303030303030303030303030303030303030303030303800481
        5820fb9a1da1f46ed778af6d75756f52189e45367d04d9e4912c5beea6af79ca29b8""",
    }
    run_11 = [bytes([n]) * 32 for n in (0x11, 0x22, 0x33)]
    run_01 = [bytes([n]) * 32 for n in range(1, 20)]
    result = [
        *(grown(f"11, 22, 33 at {n}", run_11[:n], short) for n in range(1, 4)),
        *(grown(f"01, 02, ... at {n}", run_01[:n], long) for n in range(1, 20)),
    ]
    for seq, literal in proofs.items():
        known(result[len(run_11) + seq - 1]["proof"], literal)
    if result[2]["peaks"] != [b"\x33" * 32, bytes.fromhex(short[2])]:
        raise Disagreement("the younger peak stands first")
    return result


def grown(name: str, leaves: list[bytes], roots: dict[int, str]) -> Case:
    size = len(leaves)
    all_peaks = peaks(leaves)
    root = mmr_root(all_peaks)
    path = siblings(leaves, size - 1)
    steps = [{1: 1, 2: sibling} for sibling in path]
    fields = {
        "leaves": leaves, "root": root, "peaks": all_peaks, "path": path,
        "proof": cbor({1: 1, 2: leaves[-1], 3: steps, 4: all_peaks[1:]}),
    }  # fmt: skip
    if size not in roots:
        return own(name, **fields)
    known(root, roots[size])
    return reference(name, **fields)


RUN = [bytes([n]) * 32 for n in range(1, 20)]


def inclusion_proofs() -> list[Case]:
    """An older leaf against a later size; siblings upwards, then the other peaks."""
    return [
        _inclusion(seq, size) for seq, size in ((1, 1), (1, 2), (3, 7), (5, 7), (7, 7), (4, 19))
    ]


def _inclusion(seq: int, size: int) -> Case:
    leaves = RUN[:size]
    path = siblings(leaves, seq - 1)
    span = 1 << len(path)
    start = (seq - 1) // span * span
    own_peak = tree(leaves[start : start + span], "veen/mmr-node")
    others = [peak for peak in peaks(leaves) if peak != own_peak]
    return own(
        f"leaf {seq} of {size}",
        leaves=leaves, stream_seq=seq, root=mmr_root(peaks(leaves)),
        proof=cbor({1: 1, 2: seq, 3: size, 4: path, 5: others}),
    )  # fmt: skip


def range_proofs() -> list[Case]:
    """A run of leaves against a later size; an empty run is a proof of consistency."""
    runs = ((1, 1, 1), (1, 5, 5), (3, 5, 11), (4, 19, 19), (6, 5, 13), (9, 8, 8))
    return [_range(*run) for run in runs]


def _range(first: int, last: int, size: int) -> Case:
    leaves = RUN[:size]
    before, after = peaks(leaves[: first - 1]), subtrees(leaves, last)
    return own(
        f"leaves {first} to {last} of {size}",
        leaves=leaves, from_seq=first, to_seq=last, root=mmr_root(peaks(leaves)),
        proof=cbor({1: 1, 2: first, 3: last, 4: size, 5: before, 6: after}),
    )  # fmt: skip
