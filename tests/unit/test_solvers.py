"""Exact results, compared with OpenSpiel's alpha-beta search and with plain recursion over the rules."""
import numpy as np
import pytest

from alphazero_nb.arena.connect4_search import (BOTTOM, ILLEGAL, UNKNOWN, Connect4Search, count_ones, follow_up_bound,
                                               read_bits, read_bounds, winning_cells, write_bounds)
from alphazero_nb.arena.players import SolverPlayer
from alphazero_nb.arena.solvers import DotsSolver, EndgameSolver, TableSolver, Unsolved, get_solver
from alphazero_nb.core.registry import get_game

pyspiel = pytest.importorskip("pyspiel")
from open_spiel.python.algorithms import minimax


def spiel_results(game, moves, actions):
    "The mover's result after each legal action, by OpenSpiel's rules and search."
    results = np.full(actions, ILLEGAL)
    for action in game_state(game, moves).legal_actions():
        state = game_state(game, moves)
        mover = state.current_player()
        state.apply_action(action)
        value = state.returns()[mover] if state.is_terminal() else minimax.alpha_beta_search(
            game, state, maximum_depth=60, maximizing_player_id=mover)[0]
        results[action] = np.sign(value)
    return results


def game_state(game, moves):
    state = game.new_initial_state()
    for move in moves: state.apply_action(int(move))
    return state


def some_moves(game, length, rng):
    "Random moves of a game that is in progress after `length` of them."
    while True:
        state, moves = game.new(), []
        while len(moves) < length and not game.over(state):
            moves.append(int(rng.choice(game.legal_actions(state))))
            state = game.play(state, moves[-1])
        if not game.over(state): return state, moves


@pytest.mark.parametrize("stones", [28, 31, 34, 37, 40])
def test_connect4_is_that_of_openspiel(stones):
    game, theirs = get_game("connect4"), pyspiel.load_game("connect_four")
    search, rng = Connect4Search(10_007), np.random.default_rng(stones)
    for _ in range(6):
        state, moves = some_moves(game, stones, rng)
        scores = search.scores(state)
        assert (np.where(scores == ILLEGAL, ILLEGAL, np.sign(scores)) == spiel_results(theirs, moves, 7)).all(), moves


def test_distances_are_those_of_a_plain_search():
    "By the rules alone: a win with the last stone is worth 1, and each pair of stones before it one more."
    game, search, rng = get_game("connect4"), Connect4Search(), np.random.default_rng(0)

    def best(state, stones):
        values = []
        for action in game.legal_actions(state):
            after = game.play(state, action)
            if game.over(after): values.append((43 - stones) // 2 if game.returns(after).any() else 0)
            else: values.append(-best(after, stones + 1))
        return max(values)
    for _ in range(15):
        state, _ = some_moves(game, 33, rng)
        assert search.scores(state).max() == best(state, 33)


def test_signs_are_those_of_the_distances():
    game, search, fresh, rng = get_game("connect4"), Connect4Search(), Connect4Search(101), np.random.default_rng(1)
    for stones in (20, 22, 24, 26):
        for _ in range(5):
            state, _ = some_moves(game, stones, rng)
            want = np.sign(search.scores(state).astype(int))
            assert (np.sign(search.scores(state, distances=False).astype(int)) == want).all()
            forgetful = fresh.scores(state, distances=False).astype(int)
            assert (np.sign(forgetful) == want).all(), "whatever the table forgets"


def test_a_mirrored_position_has_mirrored_scores():
    game, search, rng = get_game("connect4"), Connect4Search(), np.random.default_rng(2)
    for _ in range(10):
        state, moves = some_moves(game, 22, rng)
        assert (search.scores(game.state_after([6 - move for move in moves])) == search.scores(state)[::-1]).all()


def test_a_limit_is_kept():
    game, search = get_game("connect4"), Connect4Search(1009)
    assert search.scores(game.new(), limit=1000) is None and search.effort <= 1100
    assert search.scores(game.new(), limit=1000) is None, "and what it left in the table is not wrong"
    late, _ = some_moves(game, 36, np.random.default_rng(0))
    assert (search.scores(late) == Connect4Search().scores(late)).all()


def test_winning_cells_are_those_that_win():
    "A stone on each free cell in turn, reachable or not, by the definition of a line."
    game, rng = get_game("connect4"), np.random.default_rng(3)
    for _ in range(40):
        state, _ = some_moves(game, int(rng.integers(1, 38)), rng)
        own, mask = read_bits(state)
        mine = (state[:42].reshape(6, 7) == state[42] + 1)
        want = set()
        for row, column in zip(*np.where(state[:42].reshape(6, 7) == 0)):
            board = mine.copy()
            board[row, column] = True
            lines = ([(r + i * dr, c + i * dc) for i in range(4)] for r in range(6) for c in range(7)
                     for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)))
            if any(all(0 <= r < 6 and 0 <= c < 7 and board[r, c] for r, c in line) for line in lines):
                want.add((row, column))
        cells = winning_cells(own, mask)
        assert {(5 - bit % 7, bit // 7) for bit in range(49) if cells >> bit & 1} == want
        assert count_ones(cells) == len(want)


@pytest.mark.parametrize("rows, cols, drawn", [(2, 2, 3), (2, 3, 8), (3, 3, 16)])
def test_dots_is_that_of_openspiel(rows, cols, drawn):
    game, rng = get_game(f"dots(rows={rows},cols={cols})"), np.random.default_rng(0)
    try: theirs = pyspiel.load_game(f"dots_and_boxes(num_rows={rows},num_cols={cols})")
    except pyspiel.SpielError: pytest.skip("this OpenSpiel has no dots and boxes")
    solver = DotsSolver(game)
    for _ in range(4):
        state, moves = some_moves(game, drawn, rng)
        assert (solver.results(state) == spiel_results(theirs, moves, game.actions)).all()


def test_follow_up_promises_nothing_false():
    "Positions with an even number of stones, where the rules of OpenSpiel say what the first player can reach."
    game, theirs, rng, spoke = get_game("connect4"), pyspiel.load_game("connect_four"), np.random.default_rng(3), 0
    for _ in range(300):
        state, moves = some_moves(game, int(rng.choice([30, 32, 34])), rng)
        own, mask = read_bits(state)
        if (bound := follow_up_bound(own, mask)) == UNKNOWN or winning_cells(own, mask) & (mask + BOTTOM): continue
        results = spiel_results(theirs, moves, 7)
        spoke += 1
        assert results[results != ILLEGAL].max() <= bound, moves
    assert spoke > 20


def test_what_the_table_keeps_comes_back():
    seen, rng = np.zeros(101, np.int64), np.random.default_rng(4)
    assert read_bounds(seen, 0) == (-UNKNOWN, UNKNOWN)
    for _ in range(200):
        key, (lower, upper) = int(rng.integers(1, 1 << 49)), sorted(rng.integers(-UNKNOWN, UNKNOWN + 1, 2).tolist())
        write_bounds(seen, key, lower, upper)
        assert read_bounds(seen, key) == (lower, upper)
        assert read_bounds(seen, key + 101) == (-UNKNOWN, UNKNOWN), "another position in the same place"


def test_a_solver_that_runs_out_of_effort_says_so_and_guesses_nothing():
    game, rng, said = get_game("connect4"), np.random.default_rng(5), 0
    hasty, patient = get_solver(game, limit=20_000), get_solver(game, limit=None)
    for call in (hasty.results, hasty.scores):
        with pytest.raises(Unsolved, match="with 0 stones is not solved within 20,000 nodes"): call(game.new())
    for stones in (16, 20, 24, 28):
        for _ in range(8):
            state, _ = some_moves(game, stones, rng)
            truth = patient.results(state)
            for call in (hasty.results, hasty.scores):
                try: found = call(state)
                except Unsolved: said += 1
                else: assert (np.where(found == ILLEGAL, ILLEGAL, np.sign(found)) == truth).all()
    assert 0 < said < 64


def test_the_player_moves_where_its_solver_gives_up():
    game = get_game("connect4")
    player = SolverPlayer(game)
    player.solver.limit = 1000
    assert player.act(game.new()) == 3, "the middle column makes the most lines"


# Hex ---------------------------------------------------------------------------------------------

HEX_5 = """....W
           .WWWW
           .WWW.
           WWWW.
           W...."""   # The openings that win, row by row


@pytest.mark.parametrize("name, games", [("hex(size=2)", 5), ("hex(size=2,swap=1)", 20), ("hex(size=3)", 40)])
def test_hex_agrees_with_a_table_of_every_position(name, games):
    game, rng = get_game(name), np.random.default_rng(0)
    fast, slow = get_solver(game), TableSolver(game)
    for _ in range(games):
        state = game.new()
        while not game.over(state):
            assert fast.results(state).tolist() == slow.results(state).tolist()
            state = game.play(state, int(rng.choice(game.legal_actions(state))))


@pytest.mark.parametrize("size, stones, positions", [(4, 7, 40), (5, 16, 40)])
def test_hex_agrees_with_plain_minimax(size, stones, positions):
    "Minimax over the rules, in Python, from random positions in which nine cells are empty."
    game, rng = get_game(f"hex(size={size})"), np.random.default_rng(1)
    solver = get_solver(game)

    def wins(state, known):   # The mover
        key = state.tobytes()
        if key not in known:
            afters = [game.play(state, action) for action in game.legal_actions(state)]
            known[key] = any(game.over(after) or not wins(after, known) for after in afters)
        return known[key]
    for _ in range(positions):
        state = game.new()
        for _ in range(stones):
            if not game.over(state): state = game.play(state, int(rng.choice(game.legal_actions(state))))
        if game.over(state): continue
        known, results = {}, solver.results(state)
        for action in game.legal_actions(state):
            after = game.play(state, action)
            assert results[action] == (1 if game.over(after) or not wins(after, known) else -1)


@pytest.mark.slow
def test_the_openings_of_hex_5x5():
    """A board without symmetry of colours has one half turn. The corners a1 and b1 lose and c3 wins on every board from
    5 × 5 on (hexwiki.net, "Open problems"). From each opening that wins, the solver beats random replies."""
    game, rng = get_game("hex(size=5)"), np.random.default_rng(0)
    solver, wins = get_solver(game, limit=None), np.array([[sign == "W" for sign in row.strip()] for row in HEX_5.split("\n")])
    found = solver.results(game.new()).reshape(5, 5) == 1
    assert (found == wins).all() and (found == found[::-1, ::-1]).all()
    assert not found[0, 0] and not found[0, 1] and found[2, 2]
    for opening in np.flatnonzero(found):
        state = game.play(game.new(), int(opening))
        while not game.over(state):
            action = int(rng.choice(game.legal_actions(state))) if game.mover(state) else int(solver.results(state).argmax())
            state = game.play(state, action)
        assert game.returns(state)[0] == 1


@pytest.mark.parametrize("size, stones", [(3, 0), (4, 7)])
def test_after_a_swap_the_stones_do_not_say_who_moves(size, stones):
    "With the swap, one set of stones stands before each seat. Minimax over the rules, in Python; no opening wins."
    game, rng, known = get_game(f"hex(size={size},swap=1)"), np.random.default_rng(2), {}
    swapped, solver = size * size, get_solver(game)

    def wins(state):   # The mover
        key = state.tobytes()
        if key not in known: known[key] = any(game.over(after) or not wins(after) for after in
                                              (game.play(state, action) for action in game.legal_actions(state)))
        return known[key]
    for _ in range(1 if stones == 0 else 12):
        state = game.new()
        for ply in range(stones):
            legal = game.legal_actions(state)
            if not game.over(state): state = game.play(state, swapped if ply == 1 and rng.random() < .6 else int(rng.choice(legal)))
        if game.over(state): continue
        results = solver.results(state)
        for action in game.legal_actions(state):
            after = game.play(state, action)
            assert results[action] == (1 if game.over(after) or not wins(after) else -1), (state, action)
    if stones == 0: assert (results[:9] == -1).all()


@pytest.mark.parametrize("name", ["connect4", "tictactoe", "dots(rows=2,cols=2)", "hex(size=3)"])
def test_a_finished_game_has_no_moves_to_solve(name):
    game, rng = get_game(name), np.random.default_rng(3)
    state = game.new()
    while not game.over(state): state = game.play(state, int(rng.choice(game.legal_actions(state))))
    solver = get_solver(game)
    assert (solver.results(state) == ILLEGAL).all() and (solver.scores(state) == ILLEGAL).all()


def test_hex_says_where_its_solver_ends():
    with pytest.raises(ValueError, match="hex: size 7 cannot be solved here; sizes 2 to 5 can"): get_solver(get_game("hex"))
    game = get_game("hex(size=5)")
    with pytest.raises(Unsolved, match="are not solved within 1,000 nodes"): get_solver(game, 1000).results(game.new())
    hasty = SolverPlayer(game)
    hasty.solver = get_solver(game, 1000)
    assert hasty.act(game.new()) in game.legal_actions(game.new()), "a player has to move in any case"


@pytest.mark.parametrize("name, ends", [("othello(size=6)", 6), ("dots(rows=2,cols=2)", 6), ("tictactoe", 7), ("gomoku(size=5)", 4),
                                        ("hex(size=3,swap=1)", 5)])
def test_the_end_of_a_game_is_that_of_a_plain_search(name, ends):
    "Minimax in Python over the rules, from random positions with at most so many moves left."
    game, rng = get_game(name), np.random.default_rng(2)
    solver, found = EndgameSolver(game, limit=None), set()

    def value(state, known):   # Of the first seat
        if state.tobytes() not in known:
            afters = [value(game.play(state, action), known) for action in game.legal_actions(state)]
            known[state.tobytes()] = (max, min)[game.mover(state)](afters) if afters else int(np.sign(game.returns(state)[0]))
        return known[state.tobytes()]
    for _ in range(15):
        state, states = game.new(), []
        while not game.over(state):
            states.append(state)
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
        for state in states[-ends:][:2]:
            known, results = {}, solver.results(state)
            for action in range(game.actions):
                legal = action in game.legal_actions(state)
                right = (1 - 2 * game.mover(state)) * value(game.play(state, action), known) if legal else ILLEGAL
                assert results[action] == right
            found |= set(results.tolist())
    assert {1, -1} <= found


def test_the_end_of_othello_is_that_of_openspiel():
    game, spiel, rng = get_game("othello(size=8)"), pyspiel.load_game("othello"), np.random.default_rng(4)
    solver = EndgameSolver(game)
    for _ in range(8):
        state, moves = some_moves(game, 54, rng)
        assert solver.results(state).tolist() == spiel_results(spiel, moves, game.actions).tolist()


def test_a_line_that_has_no_room_is_not_solved():
    "A match of chess does not end where a game of self-play does, so a line may be longer than the arrays of the search."
    game = get_game("othello(size=6)")
    solver = EndgameSolver(game, 20_000)
    solver._scratch = (*(rows[:5] for rows in solver._scratch[:3]), solver._scratch[3])
    with pytest.raises(Unsolved, match=f"a line from this position is longer than {game.max_length} moves; come nearer to the end"):
        solver.results(game.new())


def test_the_end_of_a_game_may_be_too_far_away():
    game = get_game("othello(size=6)")
    with pytest.raises(Unsolved, match="are not solved within 1,000 nodes; come nearer to the end"):
        EndgameSolver(game, 1000).results(game.new())
    for name in ("pig", "blob", "2048"):
        with pytest.raises(ValueError, match="needs two players with opposite results, no dice and nothing hidden"): EndgameSolver(get_game(name))


def test_a_solver_that_was_stopped_has_noted_nothing_wrong():
    "A position that no game reaches: two noughts, and nought is to move."
    game = get_game("tictactoe")
    solver, state = TableSolver(game), game.new()
    state[0] = state[1] = 2
    state[9], state[11] = 1, 2
    before = len(solver.table)
    solver.limit = before + 3
    with pytest.raises(ValueError, match="too large"): solver.results(state)
    solver.limit = 100_000
    assert solver.results(state).tolist() == TableSolver(game).results(state).tolist()
