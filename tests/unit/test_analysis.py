"""The analysis of a position, compared with the search that an agent plays by, with exact results and with the rules."""
import json

import numpy as np
import pytest

from alphazero_nb.arena.solvers import TableSolver
from alphazero_nb.core.calls import CHANCE
from alphazero_nb.core.registry import get_game
from alphazero_nb.network.evaluator import UniformEvaluator
from alphazero_nb.search import analysis as analysis_page
from alphazero_nb.search.agent import Agent
from alphazero_nb.search.analysis import analyse, analyse_states, expected_line
from alphazero_nb.search.one_game import GameSearch, advance, root_edges
from alphazero_nb.search.search import SearchSettings, grow_trees, search, start_trees
from alphazero_nb.search.tree import NotFinite, add_edges, add_node, back_up, make_trees
from reference import HashEvaluator


class Opinion(UniformEvaluator):
    "Logits and values that depend on the position alone."
    def evaluate(self, inputs, offsets, actions):
        logits, values = super().evaluate(inputs, offsets, actions)
        for row, position in enumerate(inputs):
            rng = np.random.default_rng([int(x) + 200 for x in position])
            logits[offsets[row]:offsets[row + 1]] = rng.normal(size=offsets[row + 1] - offsets[row])
            values[row, 0] = rng.uniform(-.6, .6)
            if values.shape[1] > 1: values[row, 1:] = -values[row, 0] / (values.shape[1] - 1)
        return logits, values


def positions(game, count, seed=0, most=12):
    "Positions of random games in which a player moves."
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        state = game.new_match(len(found))
        for _ in range(int(rng.integers(1, most))):
            after, _ = game.pass_chance(game.play(state, int(rng.choice(game.legal_actions(state)))), len(found))
            if game.over(after): break
            state = after
        found.append(state)
    return np.stack(found)


def walk(branches): return [found for branch in branches for found in (branch, *walk(branch.branches))]


@pytest.mark.parametrize("name", ["connect4", "othello(size=6)", "pig", "blob(players=3,cards=3)", "chess(variant=gardner)"])
def test_visits_and_values_are_those_of_the_search(name):
    game = get_game(name)
    agent, states = Agent(game, Opinion(game), simulations=60, worlds=3, leaves=1), positions(get_game(name), 6)
    theirs = search(game, agent.evaluator, states, agent.settings, seed=0, leaves=1)
    for found, visits, values, best, state in zip(analyse_states(agent, states), theirs.visits, theirs.values, theirs.best, states):
        assert sorted(move.action for move in found.moves) == game.legal_actions(state)
        playable = {move.action: move.visits for move in found.moves if visits[move.action] > 1}
        assert all(visits[action] == count for action, count in playable.items())
        assert found.best.action == best
        assert np.allclose(found.values, values, atol=1e-5)
        assert sum(move.prior for move in found.moves) == pytest.approx(1, abs=1e-4)
        json.dumps(found.to_dict())


@pytest.mark.parametrize("name", ["connect4", "blob(players=3,cards=3)"])
def test_a_search_that_stops_half_way_goes_on_as_if_it_had_not(name):
    game = get_game(name)
    states, settings, evaluator = positions(game, 5), SearchSettings(simulations=80, worlds=3), Opinion(game)
    whole = grow_trees(start_trees(game, states, settings, seed=3), evaluator)
    halves = start_trees(game, states, settings, seed=3)
    grow_trees(halves, evaluator, 40)
    parts = grow_trees(halves, evaluator)
    for name in ("nodes", "edges", "values"): assert (getattr(whole, name) == getattr(parts, name)).all()


def test_a_move_searched_alone_gets_all_simulations_and_its_exact_result():
    game = get_game("tictactoe")
    solver, agent, proven = TableSolver(game), Agent(game, UniformEvaluator(game), simulations=3000), 0
    for state in positions(game, 12, most=6):
        results = solver.results(state)
        for action, found in zip(game.legal_actions(state), analyse_states(
                agent, [state] * len(game.legal_actions(state)), moves=game.legal_actions(state))):
            assert [move.action for move in found.moves] == [action]
            assert found.best.value == pytest.approx(results[action], abs=1e-4 if found.best.proven else .2)
            proven += found.best.proven
    assert proven > 30
    quick = analyse_states(agent, [game.new()], 50, [4])[0]
    assert quick.visits == quick.best.visits == 50


def test_lines_are_legal_and_a_proven_win_ends_with_it():
    game = get_game("connect4")
    agent, proven = Agent(game, Opinion(game), simulations=400), 0
    for found in analyse_states(agent, positions(game, 20, most=30)):
        for move in found.moves:
            state = found.state
            for action in move.line: state = game.play(state, action)
            if move.proven and move.value == 1:
                assert game.over(state) and game.returns(state)[found.mover] == 1
                proven += 1
    assert proven > 3


@pytest.mark.parametrize("name", ["connect4", "pig", "2048", "blob(players=3,cards=3)"])
def test_the_laws_of_the_tree(name):
    game = get_game(name)
    agent = Agent(game, Opinion(game), simulations=150, worlds=3)
    for state in positions(game, 3):
        found = analyse(agent, state, most=120)
        nodes = walk(found.tree)
        assert 0 < len(nodes) <= 120
        assert all(child.visits <= node.visits for node in nodes for child in node.branches)
        assert all(-1 <= node.value <= 1 for node in nodes)
        assert {b.action: b.visits for b in found.tree}.items() <= {m.action: m.visits for m in found.moves}.items()
        whole = analyse(agent, state, most=10_000)
        for node in walk(whole.tree):
            if not node.branches or node.mover == CHANCE: continue
            gap = node.visits - sum(child.visits for child in node.branches)
            assert gap >= 0, "a node is visited once for itself in each world, and at least once for each visit below"


def test_hidden_cards_do_not_show():
    game = get_game("blob(players=4,cards=4)")
    agent = Agent(game, Opinion(game), simulations=50, worlds=3)
    for seed, state in enumerate(positions(game, 4)):
        first, second = (analyse(agent, world, seed=seed) for world in (state, game.resample_hidden(state, seed + 9)))
        assert (first.moves, first.tree, first.noise, first.values) == (second.moves, second.tree, second.noise, second.values)
        assert first.noise > 0, "worlds differ"


def test_what_has_no_tree_says_so():
    game = get_game("tictactoe")
    agent = Agent(game, UniformEvaluator(game), simulations=8)
    over = game.state_after([0, 3, 1, 4, 2])
    with pytest.raises(ValueError, match="the game is over in this position"): agent.analyse(over)
    from alphazero_nb.arena.players import RandomPlayer
    with pytest.raises(ValueError, match="random has no tree to look into; pass an Agent"): analyse(RandomPlayer(game), game.new())
    with pytest.raises(ValueError, match="action 0 is not legal"): agent.analyse(game.state_after([0])).move(0)
    pig = get_game("pig")
    state = pig.new_match()
    rolling = pig.play(state, pig.legal_actions(state)[0])
    assert pig.mover(rolling) == CHANCE
    with pytest.raises(ValueError, match="chance moves in this position"): Agent(pig, UniformEvaluator(pig)).analyse(rolling)


def test_a_move_that_does_not_fit_is_named():
    game = get_game("tictactoe")
    agent, state = Agent(game, UniformEvaluator(game), 8), game.state_after([4])
    for moves, words in (([4], "tictactoe: action 4 is not legal"), ([50], "action 50 is not legal"), ([0, 1], "2 moves do not fit 1 positions")):
        with pytest.raises(ValueError, match=words): analyse_states(agent, [state], moves=moves)


def test_a_line_follows_moves_that_were_searched():
    "Three worlds. Below the root, only one world has a position, which has no visited move yet in two of them."
    game, trees = get_game("blob(players=3,cards=2)"), make_trees(3, 4, 2, 1, 3)
    roots = tuple(add_node(trees, tree, -1, 0) for tree in range(3))
    for tree, root in enumerate(roots):
        add_edges(trees, tree, root, 0, np.arange(2, dtype=np.int32), 2)
        first = trees.nodes["first"][root]
        trees.edges["prior"][first:first + 2] = .4, .6
        back_up(trees, root, np.zeros(3, np.float32))
    child = add_node(trees, 0, roots[0], 0)
    trees.edges["child"][trees.nodes["first"][roots[0]]] = child
    back_up(trees, child, np.zeros(3, np.float32))
    assert expected_line(game, trees, roots) == (0,)


def test_an_analysis_keeps_its_own_position():
    game = get_game("connect4")
    state = game.new()
    found = analyse(Agent(game, UniformEvaluator(game), 20), state)
    state[:] = game.play(state, 4)
    assert np.array_equal(found.state, game.new())


class Interrupted:
    "An evaluator that a person stops at its third question."
    def __init__(self, evaluator): self.evaluator, self.asked = evaluator, 0

    def evaluate(self, *question):
        self.asked += 1
        if self.asked == 3: raise KeyboardInterrupt
        return self.evaluator.evaluate(*question)


def test_a_search_goes_on_after_an_interrupt():
    "It answers the open questions first, and ends with the visits of a search without an interrupt."
    game = get_game("connect4")
    whole, stopped = (GameSearch(game, evaluator, leaves=4) for evaluator in (HashEvaluator(game), Interrupted(HashEvaluator(game))))
    for search in (whole, stopped): search.start(game.new())
    while whole.step(50): pass
    with pytest.raises(KeyboardInterrupt):
        while stopped.step(50): pass
    steps = 0
    while stopped.step(50):
        steps += 1
        assert steps < 200, "it never ends"
    assert np.array_equal(root_edges(stopped.trees)["visits"], root_edges(whole.trees)["visits"])


def test_a_move_after_an_interrupt_begins_a_new_tree():
    game = get_game("connect4")
    search = GameSearch(game, Interrupted(HashEvaluator(game)), leaves=4)
    search.start(game.new())
    with pytest.raises(KeyboardInterrupt):
        while search.step(50): pass
    assert advance(search, 3) and search.visits == 0
    while search.step(50): pass
    assert search.visits >= 50


def test_an_answer_that_was_written_in_part_ends_the_search():
    game, evaluator = get_game("connect4"), HashEvaluator(get_game("connect4"))
    search = GameSearch(game, evaluator, leaves=4)
    search.start(game.new())
    while search.visits < 5: search.step(50)
    evaluator.evaluate = lambda *question: tuple(np.full_like(part, np.nan) for part in HashEvaluator.evaluate(evaluator, *question))
    with pytest.raises(NotFinite): search.step(50)
    with pytest.raises(RuntimeError, match="begin anew"): search.step(50)
    del evaluator.evaluate
    search.start(game.new())
    assert search.step(50)


@pytest.mark.parametrize("name", ["gomoku(size=5)", "connect4", "dots(rows=2,cols=2)"])
def test_lines_are_read_without_a_list_of_all_moves(name, monkeypatch):
    "On a board of Go, a list of Python objects for each node of each line took longer than the search."
    game, asked, read = get_game(name), [], analysis_page.children_of
    best = lambda game, trees, nodes: (lambda child: (child.action, child.visits, child.nodes))(
        analysis_page.by_rank(read(game, trees, nodes))[0])
    states, agent = positions(game, 6), Agent(game, Opinion(game), 48)
    found = analyse_states(agent, states)
    with monkeypatch.context() as patched:
        patched.setattr(analysis_page, "best_child", best)
        assert [each.moves for each in analyse_states(agent, states)] == [each.moves for each in found]
    monkeypatch.setattr(analysis_page, "children_of", lambda *args: asked.append(args) or read(*args))
    trees = grow_trees(start_trees(game, np.array(states), agent.settings), agent.evaluator)
    for tree in range(len(states)): expected_line(game, trees, (tree * len(trees.remap),))
    assert not asked
