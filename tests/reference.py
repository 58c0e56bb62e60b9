"""Slow references in plain Python: a tree search written from its definition, and exact solutions."""
import itertools
import math
import zlib

import numpy as np

from alphazero_nb.core.calls import CHANCE


class HashEvaluator:
    """Opinions that follow from the position alone: any logits, and values that do not sum to zero, so that a search
    that flips signs instead of asking each player's own value is found out."""
    def __init__(self, game): self.game, self.batches = game, []

    def evaluate(self, inputs, offsets, actions):
        self.batches.append(len(inputs))
        logits, values = np.empty(len(actions), np.float32), np.empty((len(inputs), self.game.players), np.float32)
        for row, observation in enumerate(inputs):
            rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(observation).tobytes()))
            values[row] = rng.uniform(-1, 1, self.game.players)
            edges = slice(offsets[row], offsets[row + 1])
            logits[edges] = rng.normal(0, 1.5, self.game.actions)[actions[edges]]
        return logits, values


class Ignorant:
    "Every move as likely as any other, every position a draw."
    def __init__(self, game): self.game = game

    def evaluate(self, inputs, offsets, actions):
        return np.zeros(len(actions), np.float32), np.zeros((len(inputs), self.game.players), np.float32)


class Node:
    def __init__(self, game, state):
        self.state, self.mover, self.visits, self.edges = state, game.mover(state), 0, []
        self.sums, self.own, self.exact = np.zeros(game.players, np.float32), 0, None


class Edge:
    def __init__(self, action, prior):
        self.action, self.prior, self.visits, self.value, self.child = action, prior, 0, np.float32(0), None
        self.waiting = 0   # Walks through this edge that wait for an answer


def judge(game, evaluator, node):
    "Gives an open node its edges; returns its value by seat."
    legal = game.legal_actions(node.state)
    observation = game.inputs(node.state).reshape(1, -1)
    logits, values = evaluator.evaluate(observation, np.array([0, len(legal)], np.int32), np.array(legal, np.int32))
    weights = [math.exp(float(logit) - float(max(logits))) for logit in logits]
    node.edges = [Edge(action, np.float32(weight / sum(weights))) for action, weight in zip(legal, weights)]
    by_seat = np.zeros(game.players, np.float32)
    for k in range(game.players): by_seat[(node.mover + k) % game.players] = values[0, k]
    return by_seat


def explored(mean, prior, visits, walks, c_puct=1.5):
    """The formula of `select_edge`, here for all slow searches: a mean result, and the exploration of an edge with so
    many visits below a node with so many."""
    return mean + c_puct * math.sqrt(walks) * float(prior) / (1 + visits)


def spread_of(game, root):
    "In a game with chance, a search explores as far as the results of the moves differ where there is a first choice."
    while len(root.edges) == 1 and root.edges[0].child is not None: root = root.edges[0].child
    means = [float(edge.value) / edge.visits for edge in root.edges if edge.visits]
    return 1.0 if not game.has_chance or len(means) < 2 else min(max(max(means) - min(means), .01), 1.0)


def puct(node, c_puct, fpu):
    """PUCT; an untried move is expected to be worth the node's mean less fpu·√(prior mass tried). Ties: the first. Walks
    that wait are visits without a result; a move with no others is expected to be worth the node's mean less fpu."""
    tried = sum(float(edge.prior) for edge in node.edges if edge.visits + edge.waiting)
    average = float(node.sums[node.mover]) / node.visits
    walks = node.visits + sum(edge.waiting for edge in node.edges)

    def score(edge):
        visits = edge.visits + edge.waiting
        untried = average - fpu * (1 if edge.waiting else math.sqrt(tried))
        mean = float(edge.value) / edge.visits if edge.visits else untried
        return explored(mean, edge.prior, visits, walks, c_puct)
    return max(node.edges, key=score)


def slow_search(game, evaluator, root, budget, c_puct=1.5, fpu=0.2, priors=None):
    "Simulates until the root's edges have `budget` visits; `priors` replace the root's own."
    if not root.visits:
        root.sums += judge(game, evaluator, root)
        root.visits = 1
    if priors is not None:
        for edge, prior in zip(root.edges, priors): edge.prior = prior
    while sum(edge.visits for edge in root.edges) < budget:
        node, path = root, []
        while node.edges:
            edge = puct(node, c_puct, fpu)
            if edge.child is None: edge.child = Node(game, game.play(node.state, edge.action))
            path.append((node, edge))
            node = edge.child
        back_up(path, node, game.returns(node.state) if node.mover < 0 else judge(game, evaluator, node))
    return root


def slow_batches(game, evaluator, root, budget, leaves):
    """The search with up to `leaves` walks per batch: each walk that ends at a position without an answer counts as a
    visit in every edge of its path until all answers of the batch are there."""
    if not root.visits: slow_search(game, evaluator, root, 0)
    while sum(edge.visits for edge in root.edges) < budget:
        waiting, walks = {}, []
        while len(walks) < leaves and sum(edge.visits + edge.waiting for edge in root.edges) < budget:
            node, path = root, []
            while node.edges:
                edge = puct(node, 1.5, .2)
                if edge.child is None: edge.child = Node(game, game.play(node.state, edge.action))
                path.append((node, edge))
                node = edge.child
            if node.mover < 0:
                back_up(path, node, game.returns(node.state))
                continue
            for _, edge in path: edge.waiting += 1
            walks.append(path)
            waiting[id(node)] = path, node
        for path, node in waiting.values(): back_up(path, node, judge(game, evaluator, node))
        for path in walks:
            for _, edge in path: edge.waiting -= 1
    return root


def back_up(path, leaf, result):
    "Adds a result to a leaf and to the edges and nodes above it."
    for node, edge in path:
        edge.visits += 1
        edge.value += result[node.mover]
    for node in [above for above, _ in path] + [leaf]:
        node.visits += 1
        node.sums += result


def decided(node, ties_agree):
    "The exact result of a node by seat, if its edges decide it: a win, or the best of all if ties agree for every seat."
    known = [edge.child.exact for edge in node.edges if edge.child is not None and edge.child.exact is not None]
    best = max((result[node.mover] for result in known), default=-2)
    ties = [result for result in known if result[node.mover] > best - 1e-5]
    if ties_agree and best > 1 - 1e-5: return ties[0]
    if len(known) < len(node.edges) or any(np.abs(result - ties[0]).max() > 1e-5 for result in ties): return None
    return ties[0]


def choice(node, ties_agree, spread=1.0):
    "PUCT; a proven move counts as its result, a lost one not at all. Proven moves that may differ for others take turns."
    tried = sum(float(edge.prior) for edge in node.edges if edge.visits)
    untried = float(node.sums[node.mover]) / node.visits - spread * .2 * math.sqrt(tried)

    def score(edge):
        if edge.child is not None and edge.child.exact is not None:
            result = float(edge.child.exact[node.mover])
            return result if result > -1 + 1e-5 else -1e9
        mean = float(edge.value) / edge.visits if edge.visits else untried
        return explored(mean, edge.prior, edge.visits, node.visits, spread * 1.5)
    best = max(node.edges, key=score)
    if ties_agree or best.child is None or best.child.exact is None: return best
    known = [edge for edge in node.edges if edge.child is not None and edge.child.exact is not None]
    most = max(edge.child.exact[node.mover] for edge in known)
    return min((edge for edge in known if edge.child.exact[node.mover] > most - 1e-5), key=lambda edge: edge.visits)


def wins_at_once(game, state):
    "The first move that ends the game with the best possible result for the mover, if there is one."
    for action in game.legal_actions(state):
        after = game.play(state, action)
        if game.mover(after) == -1 and game.returns(after)[game.mover(state)] > 1 - 1e-5: return action


def proving_search(game, evaluator, root, budget, find_wins=True):
    """The search with proofs. After each simulation, the sums on its path are computed anew from those below. With
    `find_wins`, a simulation goes on from a new position to the end of the game where a move wins at once. Until one
    has reached an end, only every second position is asked for such a move."""
    ties_agree = game.players == 1 or game.zero_sum
    slow_search(game, evaluator, root, 0)
    root.own, nodes, ended = root.sums.copy(), 1, False
    while root.visits <= budget and root.exact is None:
        node, path, spread = root, [], spread_of(game, root)
        while node.edges and node.exact is None:
            edge = choice(node, ties_agree, spread)
            if edge.child is None: edge.child, nodes = Node(game, game.play(node.state, edge.action)), nodes + 1
            path.append((node, edge))
            node = edge.child
        asked = find_wins and budget > 1 and ties_agree and node.mover >= 0 and not node.visits and (ended or nodes % 2 == 0)
        win = wins_at_once(game, node.state) if asked else None
        if win is not None:
            nodes += 1
            node.edges = [Edge(action, np.float32(0)) for action in game.legal_actions(node.state)]
            edge = next(edge for edge in node.edges if edge.action == win)
            edge.child = Node(game, game.play(node.state, win))
            path.append((node, edge))
            node = edge.child
        ended = ended or node.mover < 0
        if node.mover < 0: node.exact = game.returns(node.state)
        elif node.exact is None: node.own = judge(game, evaluator, node)
        node.visits += 1
        node.sums = node.own + np.zeros_like(root.sums) if node.exact is None else node.exact * np.float32(node.visits)
        for above, edge in reversed(path):
            edge.visits, edge.value, above.visits = edge.visits + 1, edge.child.sums[above.mover], above.visits + 1
            above.exact = decided(above, ties_agree)
            above.sums = above.own + sum(edge.child.sums for edge in above.edges if edge.child is not None)
            if above.exact is not None: above.sums = above.exact * np.float32(above.visits)
    return root


def visits_of(game, root):
    visits = np.zeros(game.actions, int)
    for edge in root.edges: visits[edge.action] = edge.visits
    return visits


def solve(game, state, known):
    "Result by seat under best play of everybody (max-n), exact, memoised."
    key = state.tobytes()
    if key not in known:
        if game.over(state): known[key] = tuple(game.returns(state).tolist())
        else:
            mover = game.mover(state)
            known[key] = max((solve(game, game.play(state, action), known) for action in game.legal_actions(state)),
                             key=lambda result: result[mover])
    return known[key]


def outcomes_of(game, state, known):
    """All results by seat that best play can have, a set: players to whom several moves are worth the same take any of
    them, each time anew. Where chance moves, the expectations over the outcomes."""
    key = state.tobytes()
    if key in known: return known[key]
    if game.over(state): return known.setdefault(key, {tuple(game.returns(state).tolist())})
    mover, after = game.mover(state), [outcomes_of(game, game.play(state, a), known) for a in game.legal_actions(state)]
    if mover == CHANCE:
        shares = [share for _, share in game.chance(state)]
        found = {tuple(np.round(np.dot(shares, results), 7)) for results in itertools.product(*after)}
    else:   # A result can be chosen if each other move may turn out no better for the mover
        least = [min(result[mover] for result in results) for results in after]
        found = {result for results in after for result in results if result[mover] > max(least) - 1e-6}
    return known.setdefault(key, found)


def best_actions(game, state, known):
    mover = game.mover(state)
    worth = {action: solve(game, game.play(state, action), known)[mover] for action in game.legal_actions(state)}
    return [action for action, value in worth.items() if value == max(worth.values())], worth


def all_positions(game, state, seen):
    "Every open position that can be reached."
    if game.over(state) or state.tobytes() in seen: return seen
    seen[state.tobytes()] = state
    for action in game.legal_actions(state): all_positions(game, game.play(state, action), seen)
    return seen


def late_positions(game, left, count, seed):
    "Different open positions with at most `left` free lines or cells, after random moves."
    rng, found = np.random.default_rng(seed), {}
    for _ in range(50 * count):
        state, stop = game.new(), rng.integers(1, left + 1)
        while not game.over(state) and len(game.legal_actions(state)) > stop:
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if not game.over(state): found[state.tobytes()] = state
        if len(found) == count: break
    return list(found.values())
