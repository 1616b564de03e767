"""Chooses the snapshot from which all ranks resume. Rank 0 calls decide() with the offers of all ranks. The functions are pure.

A snapshot is named by (step, round). Its header states whether it is replicated. Every rank can load a replicated snapshot.
Any other snapshot can be loaded only by the rank that wrote it. An offer of a rank is a dict:

    own          names of snapshots that this rank wrote
    replicated   names of replicated snapshots in its slot of the memory file
    refused      names of replicated snapshots that do not fit its script
    why          the first reason for a refusal, or ""
    able         whether the rank can read snapshots
    at           number of its node

An example: ranks 0 and 1 on node 0 have the replicated steps 9 and 10, and rank 2 on node 1 has step 9. All ranks resume from
step 9, the newest step that all ranks have. If node 1 is new and has no snapshot, rank 2 receives step 10 from rank 0."""

NOTHING = {"own": [], "replicated": [], "refused": [], "why": "", "able": False}  # the offer of a rank without snapshots


def decide(offers):
    """Returns the decision as {"step": ..., "round": ...}. The first choice is the newest snapshot that each rank wrote itself.
    The second is the newest replicated snapshot that is on every node. The third is a replicated snapshot that only some nodes
    have, which the other nodes receive from them. For the third choice, the decision also has "lend" and "borrow", the lists of
    sending and receiving ranks. If no choice is possible, "step" is None, and "why" is the reason."""
    on_node = _on_nodes(offers)
    for common in (set.intersection(*(_names(offer["own"]) for offer in offers)), set.intersection(*on_node.values())):
        if common:
            return _decided(max(common))
    why = next((offer["why"] for offer in offers if offer["why"]), "")
    if not why and any(offer["own"] or offer["replicated"] for offer in offers):
        unable = [rank for rank, offer in enumerate(offers) if not offer["able"]]
        without = [rank for rank, offer in enumerate(offers) if not offer["own"] and not on_node[offer["at"]]]
        borrowed = _borrowed(offers, on_node)
        if borrowed:
            return borrowed
        if unable:
            why = "no snapshot is restored: rank %d has no memory for snapshots" % unable[0]
        elif without:
            why = "no snapshot is restored: rank %d has none" % without[0]
        else:
            why = "no snapshot is restored: no step has a snapshot on every rank"
    return {"step": None, "why": why}


def _names(pairs):
    return {(step, round_) for step, round_ in pairs}


def _decided(name, **more):
    return {"step": name[0], "round": name[1], **more}


def _on_nodes(offers):
    """Returns {node: names of the snapshots that all of its ranks can load}. If any rank refuses a snapshot, it is excluded on
    all nodes. If any rank cannot read snapshots, all sets are empty."""
    found = {offer["at"]: set() for offer in offers}
    if all(offer["able"] for offer in offers):
        for offer in offers:
            found[offer["at"]] |= _names(offer["replicated"])
    refused = set().union(*(_names(offer["refused"]) for offer in offers))
    return {at: names - refused for at, names in found.items()}


def _borrowed(offers, on_node):
    """Returns the decision with its lenders and borrowers, or None if no node has a replicated snapshot. Each node is
    represented by its first rank, which sends the chosen snapshot if the node has it, and receives it otherwise."""
    first = {}
    for rank, offer in enumerate(offers):
        first.setdefault(offer["at"], rank)
    newest = max((name for names in on_node.values() for name in names), default=None)
    if newest is None:
        return None
    # Each node keeps its last two snapshots. A node that is one step behind does not have the newest snapshot of the job, but it has the
    # previous snapshot. So these two snapshots are the candidates, and we take the candidate that most nodes have.
    names = set().union(*(names for names in on_node.values() if newest in names))
    name = max(names, key=lambda name: (sum(name in there for there in on_node.values()), name))
    return _decided(name, lend=[rank for at, rank in first.items() if name in on_node[at]],
                    borrow=[rank for at, rank in first.items() if name not in on_node[at]])
