"Opponents that count material, against a search in plain Python without any cut-off."
from collections import Counter

import numpy as np
import pytest

from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player
from alphazero_nb.arena.solvers import get_solver
from alphazero_nb.core.game_check import ContractError
from alphazero_nb.core.game import Game
from alphazero_nb.core.registry import get_game

GAMES = ["dots(rows=2,cols=2)", "dots(rows=3,cols=3)", "chess(variant=gardner)", "chess"]
WORTH = dict(p=1, n=3, b=3, r=5, q=9)


def boxes(game, state):
    "Boxes of each seat, or what its pieces are worth, counted from the drawing."
    drawing = game.text(state)
    if not game.name.startswith("chess"): return [drawing.count("x"), drawing.count("o")]
    pieces = "".join(line[1:] for line in drawing.splitlines() if line[0].isdigit())
    return [sum(worth * pieces.count(letter) for letter, worth in WORTH.items()) for pieces in (pieces.swapcase(), pieces)]


def worth(game, state, depth, seat):
    "What a seat is ahead after `depth` best moves; a finished game is worth more than any lead, a sooner win still more."
    if game.over(state): return game.returns(state)[seat] * (1e6 + depth)
    if depth == 0: return boxes(game, state)[seat] - boxes(game, state)[1 - seat]
    values = [worth(game, game.play(state, action), depth - 1, seat) for action in game.legal_actions(state)]
    return max(values) if game.mover(state) == seat else min(values)


def random_states(game, count, seed):
    rng, states = np.random.default_rng(seed), []
    while len(states) < count:
        state, path = game.new(), []
        while not game.over(state):
            path.append(state)
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        states.append(path[rng.integers(len(path))])
    return np.stack(states)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_minimax_chooses_what_a_plain_search_likes_best(name, depth):
    game = get_game(name)
    for state in random_states(game, 12 if depth < 3 else 4, seed=depth):
        seat, legal = game.mover(state), game.legal_actions(state)
        if len(legal) ** depth > (6000 if name[0] == 'd' else 900): continue
        values = {action: worth(game, game.play(state, action), depth - 1, seat) for action in legal}
        best = {action for action, value in values.items() if value == max(values.values())}
        found = set(get_player(f"minimax:{depth}", game, seed=1).acts(np.stack([state] * 8 * len(best))).tolist())
        assert found <= best and (len(best) > 3 or found == best), "a best move, and each of them sometimes"


@pytest.mark.parametrize("name", GAMES)
def test_greedy_takes_the_most_and_draws_lots(name):
    game = get_game(name)
    for state in random_states(game, 20, seed=3):
        seat = game.mover(state)
        counts = {action: boxes(game, game.play(state, action)) for action in game.legal_actions(state)}
        gains = {action: count[seat] - count[1 - seat] for action, count in counts.items()}
        best = {action for action, gain in gains.items() if gain == max(gains.values())}
        counts = Counter(get_player("greedy", game, seed=1).acts(np.stack([state] * 60 * len(best))).tolist())
        assert set(counts) == best and min(counts.values()) > 20


def test_as_far_as_the_end_is_perfect_play():
    game = get_game("dots(rows=1,cols=2)")
    solver, player = get_solver(game), get_player("minimax:7", game)
    for state in random_states(game, 60, seed=1):
        results = solver.results(state)
        assert results[player.act(state)] == results.max()


def test_the_seed_decides_and_the_number_of_cores_does_not(monkeypatch):
    game = get_game("dots(rows=3,cols=3)")
    states = random_states(game, 30, seed=9)
    for name in ("greedy", "minimax:2"):
        first = get_player(name, game, seed=4).acts(states).tolist()
        monkeypatch.setattr("alphazero_nb.arena.players.usable_cores", lambda: 1)
        assert get_player(name, game, seed=4).acts(states).tolist() == first
        assert get_player(name, game, seed=5).acts(states).tolist() != first
        monkeypatch.undo()


def test_greedy_does_not_see_what_is_hidden():
    "The card says which of two moves wins something; the moves are the same for either card, and only half of them are right."
    def start(state, seed): state[1] = seed
    def mover(state): return 0 if state[0] == 0 else -1
    def legal(state, actions):
        actions[0], actions[1] = 0, 1
        return 2
    def play(state, action): state[0], state[2] = 1, 1 if action == state[1] else 0
    def returns(state, out): out[0], out[1] = (1, -1) if state[2] == 1 else (-1, 1)
    def observe(state, planes): planes[0] = state[0]
    def resample_hidden(state, seed): state[1] = seed % 2
    def material(state, out): out[0] = state[2]
    game = Game("guess", start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, material=material,
                resample_hidden=resample_hidden, state_size=3, players=2, actions=2, shape=(1,), max_length=1)
    first, second = (get_player("greedy", game, seed=4).acts(np.stack([game.new(card)] * 200)).tolist() for card in (0, 1))
    assert first == second and 60 < sum(first) < 140


def test_looking_ahead_wins():
    game = get_game("dots(rows=3,cols=3)")
    assert play_match(game, get_player("greedy", game), get_player("random", game), 60).interval[0] > .7
    assert play_match(game, get_player("minimax:3", game), get_player("greedy", game), 60).interval[0] > .6


@pytest.mark.parametrize("name, game, words", [
    ("greedy", "connect4", "greedy needs a game with a count of material, and connect4 has none"),
    ("minimax:2", "tictactoe", "count of material"),
    ("minimax:0", "dots(rows=2,cols=2)", "look 1 to 12 moves ahead"),
    ("minimax", "dots(rows=2,cols=2)", "as in minimax:2"),
    ("minimax:x", "dots(rows=2,cols=2)", "as in minimax:2"),
    ("greedy:3", "dots(rows=2,cols=2)", "write greedy"),
    ("minmax:2", "dots(rows=2,cols=2)", "Did you mean 'minimax:2'"),
])
def test_what_cannot_play_is_one_sentence(name, game, words):
    with pytest.raises(ValueError, match=words) as caught: get_player(name, get_game(game))
    assert "\n" not in str(caught.value)


def test_material_is_part_of_the_contract():
    "It may not change the state, and it must be a number."
    def start(state, seed): state[0] = 3
    def mover(state): return 0 if state[0] > 0 else -1
    def legal(state, actions):
        actions[0] = 0
        return 1
    def play(state, action): state[0] -= 1
    def returns(state, out): out[0], out[1] = 1, -1
    def observe(state, planes): planes[0] = state[0]
    def changes(state, out): state[1] += 1
    def endless(state, out): out[0] = np.inf
    rules = dict(start=start, mover=mover, legal=legal, play=play, returns=returns, observe=observe, state_size=2,
                 players=2, actions=1, shape=(1,), max_length=3)
    for material, words in ((changes, "must not change the state"), (endless, "finite")):
        with pytest.raises(ContractError, match=f"material.*{words}"): Game("countdown", material=material, **rules).check()
    assert not Game("countdown", **rules).has_material
