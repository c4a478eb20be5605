"""Property steps: sequence numbers and nonces (spec 4.2, 7), Merkle ranges (5), encodings (3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cli.selftest.samples import (
    TYPES,
    NaiveTree,
    SelftestStep,
    carries_raw_items,
    expect,
    expect_raises,
    expect_that,
    sample,
    variants,
)
from cli.selftest.world import World
from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.label import DEFAULT_PROFILE
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.payload import Ciphertext, SealPlace
from veen.proofs import (
    LEAF_ON_THE_LEFT,
    LEAF_ON_THE_RIGHT,
    InclusionProof,
    MmrProof,
    RangeProof,
    consistency,
    verify_consistency,
)
from veen.proofs import ProofStep as PathStep
from veen.receipt import Receipt
from veen.wire import cbor

_USUAL_DUPLICATES: Final = 60
_USUAL_NONCES: Final = 500
_MMR_RUNS: Final = 200
_MOST_LEAVES: Final = 130
_WIRE_RUNS: Final = 20
_USUAL_REFUSED: Final = 2


def duplicate_rejection(world: World) -> None:
    """Any duplicate, at any time, is refused with its stream_seq."""
    writer = world.writer()
    sent: list[tuple[Msg, Receipt]] = []
    for _ in world.cases(_USUAL_DUPLICATES):
        msg = writer.msg(world.random.randbytes(8))
        sent.append((msg, writer.accepted(msg)))
        writer.known(*world.random.choice(sent))
    head = world.api().receipt(writer.labels.at(0), writer.prev_ack)
    expect("the last of the label", head, sent[-1][1])


def nonce_uniqueness(world: World) -> None:
    """Sealing the same body repeatedly never repeats a nonce, key or ciphertext."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        bodies = (b"the same" for _ in world.cases(_USUAL_NONCES))
        sent = [event.msg for event in client.send_many(world.stream, bodies, capability=token)]
    expect("sent", len(sent), len(world.cases(_USUAL_NONCES)))
    for what, values in (
        ("nonces", {SealPlace.of(item, DEFAULT_PROFILE).nonce() for item in sent}),
        ("ephemeral keys", {Ciphertext.decode(item.ciphertext, 0).enc for item in sent}),
        ("sealed bodies", {Ciphertext.decode(item.ciphertext, 0).body for item in sent}),
        ("places", {(item.client_seq, item.label) for item in sent}),
    ):
        expect(f"different {what}", len(values), len(sent))


HUB_STEPS: Final = (
    SelftestStep("duplicate-rejection", duplicate_rejection),
    SelftestStep("nonce-uniqueness", nonce_uniqueness),
)


def associativity(world: World) -> None:
    """Appending subtrees gives the same root as appending leaves."""
    for _ in world.cases(_MMR_RUNS):
        tree = _tree(world)
        size = len(tree.leaves)
        single = _grown(tree)
        grafted, start = EMPTY, 0
        while start < size:
            most = [
                item for item in range(8) if not start % (1 << item) and start + (1 << item) <= size
            ]
            height = world.random.choice(most)
            grafted = grafted.graft(height, tree.node(height, start >> height))
            start += 1 << height
        expect(f"peaks of {size} leaves by grafting", grafted, single)
        expect(f"root of {size} leaves", single.root(), tree.root_at(size))
        expect(f"peaks of {size} leaves from the nodes", mmr.peaks_at(tree, size), single)


def _grown(tree: NaiveTree) -> Peaks:
    peaks = EMPTY
    for leaf in tree.leaves:
        peaks = peaks.append(leaf)
    return peaks


def proof_is_minimal(world: World) -> None:
    """An inclusion proof has exactly as many steps as the size has trailing zeros."""
    for _ in world.cases(_MMR_RUNS):
        tree = _tree(world)
        size = len(tree.leaves)
        proof = MmrProof.build(tree, size)
        trailing = (size & -size).bit_length() - 1
        expect(f"path at {size}", len(proof.path), trailing)
        expect(f"other peaks at {size}", len(proof.peaks_after), size.bit_count() - 1)
        verify = _verifier(tree, size)
        verify(proof)
        more = PathStep(dir=LEAF_ON_THE_RIGHT, sib=world.random.randbytes(32))
        extra = world.random.randbytes(32)
        wrong = [
            replace(proof, path=(*proof.path, more)),
            replace(proof, peaks_after=(*proof.peaks_after, extra)),
            replace(proof, leaf_hash=extra),
        ]
        if proof.path:
            turned = replace(proof.path[0], dir=LEAF_ON_THE_LEFT)
            wrong += [
                replace(proof, path=proof.path[:-1]),
                replace(proof, path=(turned, *proof.path[1:])),
            ]
        if proof.peaks_after:
            wrong.append(replace(proof, peaks_after=proof.peaks_after[1:]))
        for item in wrong:
            expect_raises(f"a wrong proof at {size}", Untrusted, verify, item)
        _expect_shape(tree, size, proof)


def _expect_shape(tree: NaiveTree, size: int, proof: MmrProof) -> None:
    """Proofs with the same hashes in another shape, and a matching root, are refused."""
    extra = bytes(32)
    peak = mmr.node(extra, tree.node(0, size - 1))
    for step in proof.path:
        peak = mmr.node(step.sib, peak)
    longer = (PathStep(dir=LEAF_ON_THE_RIGHT, sib=extra), *proof.path)
    root = Peaks(size, (peak, *proof.peaks_after)).root()
    forged = replace(proof, path=longer)
    leaf = tree.leaves[size - 1]
    expect_raises(
        f"a longer path to a root of its own at {size}",
        Untrusted,
        forged.verify,
        leaf_hash=leaf,
        stream_seq=size,
        root=root,
    )


def _verifier(tree: NaiveTree, size: int) -> Callable[[MmrProof], None]:
    leaf, root = tree.leaves[size - 1], tree.root_at(size)
    return lambda proof: proof.verify(leaf_hash=leaf, stream_seq=size, root=root)


def inclusion(world: World) -> None:
    for _ in world.cases(_MMR_RUNS):
        tree = _tree(world)
        size = len(tree.leaves)
        seq = world.random.randint(1, size)
        proof = InclusionProof.build(tree, seq, size)
        leaf, root = tree.leaves[seq - 1], tree.root_at(size)
        proof.verify(leaf_hash=leaf, stream_seq=seq, size=size, root=root)
        other = world.random.randbytes(32)
        for what, given in (
            ("another leaf", {"leaf_hash": other, "root": root}),
            ("another root", {"leaf_hash": leaf, "root": other}),
        ):
            expect_raises(
                what,
                Untrusted,
                proof.verify,
                stream_seq=seq,
                size=size,
                **given,
            )


def ranges(world: World) -> None:
    for _ in world.cases(_MMR_RUNS):
        tree = _tree(world)
        size = len(tree.leaves)
        first = world.random.randint(1, size)
        last = world.random.randint(first - 1, size)
        proof = RangeProof.build(tree, first, last, size)
        leaves, root = list(tree.leaves[first - 1 : last]), tree.root_at(size)
        proof.verify(leaves=leaves, size=size, root=root)
        wrong = [[*leaves, world.random.randbytes(32)]]
        if leaves:
            wrong += [leaves[:-1], [*leaves[:-1], world.random.randbytes(32)]]
        for item in wrong:
            expect_raises(
                f"other leaves from {first} to {last} of {size}",
                Untrusted,
                proof.verify,
                leaves=item,
                size=size,
                root=root,
            )


def consistent_sizes(world: World) -> None:
    """A consistency proof accepts an extended range, and no other one."""
    for _ in world.cases(_MMR_RUNS):
        tree = _tree(world)
        new = len(tree.leaves)
        old = world.random.randint(1, new)
        proof = consistency(tree, old, new)
        roots = tree.root_at(old), tree.root_at(new)
        _verify(proof, old, new, *roots)
        changed = list(tree.leaves)
        changed[world.random.randrange(old)] = world.random.randbytes(32)
        forked = NaiveTree(changed)
        for given in ((forked.root_at(old), roots[1]), (roots[0], forked.root_at(new))):
            expect_raises(
                f"another history from {old} to {new}",
                Untrusted,
                _verify,
                proof,
                old,
                new,
                *given,
            )


def _verify(proof: RangeProof, old: int, new: int, old_root: bytes, new_root: bytes) -> None:
    verify_consistency(proof, old_size=old, old_root=old_root, new_size=new, new_root=new_root)


def _tree(world: World) -> NaiveTree:
    size = world.random.randint(1, _MOST_LEAVES)
    return NaiveTree([world.random.randbytes(32) for _ in range(size)])


MMR_STEPS: Final = (
    SelftestStep("mmr-associativity", associativity),
    SelftestStep("mmr-proof-minimality", proof_is_minimal),
    SelftestStep("inclusion-proofs", inclusion),
    SelftestStep("range-proofs", ranges),
    SelftestStep("consistency-proofs", consistent_sizes),
)


def determinism(world: World) -> None:
    """Encoding is deterministic: decode and encode give the same object and bytes."""
    for cls in TYPES:
        for _ in world.cases(_WIRE_RUNS):
            made = sample(world.random, cls)
            raw = made.encode()
            decoded = cls.decode(raw)
            expect(f"{cls.__name__} decoded", decoded, made)
            expect(f"{cls.__name__} encoded again", cbor.dump(decoded.plain()), raw)


def other_encodings(world: World) -> None:
    """No other encoding of an object is accepted."""
    tried = 0
    for cls in TYPES:
        for _ in world.cases(_USUAL_REFUSED):
            raw = sample(world.random, cls).encode()
            for what, wrong in variants(raw, carries_raw_items(cls)):
                name = f"{cls.__name__} with {what}"
                expect_raises(name, Malformed, cls.decode, wrong)
                tried += 1
    expect_that(tried >= len(TYPES), "every type was tried")


WIRE_STEPS: Final = (
    SelftestStep("cbor-determinism", determinism),
    SelftestStep("cbor-other-encodings", other_encodings),
)
