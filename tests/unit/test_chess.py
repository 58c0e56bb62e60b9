"Chess against known counts, a slow generator, OpenSpiel and python-chess; its ends, its parameters, and its text."
import importlib.util
import io
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import chess_reference as slow
from alphazero_nb.arena.matches import PlayedGame, play_match
from alphazero_nb.arena.players import RandomPlayer
from alphazero_nb.core.compiled import kernel
from alphazero_nb.core.calls import call_legal, call_play, LEGAL, PLAY
from alphazero_nb.core.registry import get_game, register
from alphazero_nb.core.records import check_records
from alphazero_nb.games.chess import FIFTY_MOVES, LENGTH, REPETITION, fingerprint, move_of
from alphazero_nb.games.chess_board import CLOCK, ENDED, FENS, HASH_COUNT, KEPT, PLY, REPEATS, parse_fen
from alphazero_nb.games.chess_moves import count_lines
from alphazero_nb.games.chess_text import (from_fen, is_chess, match_pgn, move_to_san, move_to_uci, read_pgn,
                                           san_to_action, to_fen, uci_to_action, write_pgn)
from alphazero_nb.network.networks import PolicyValueNet
from alphazero_nb.selfplay.engine import SelfPlayEngine

GARDNER = "chess(variant=gardner)"
COUNTS = {   # chessprogramming.org, "Perft Results"
    FENS[8]: [20, 400, 8902, 197281, 4865609],
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1": [48, 2039, 97862, 4085603],
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1": [14, 191, 2812, 43238, 674624, 11030083],
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1": [6, 264, 9467, 422333],
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8": [44, 1486, 62379, 2103487],
    "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10": [46, 2079, 89890, 3894594]}


@pytest.fixture(scope="module")
def game(): return get_game("chess")


@pytest.fixture(scope="module")
def small(): return get_game(GARDNER)


@kernel
def perft_by_address(api, rows, actions, depth):
    "Count lines of play through the game's own functions, as the search calls them."
    if depth == 0: return 1
    total = 0
    for i in range(call_legal(api[LEGAL], rows[0], actions[0])):
        for k in range(rows.shape[1]): rows[1, k] = rows[0, k]
        call_play(api[PLAY], rows[1], actions[0, i])
        total += perft_by_address(api, rows[1:], actions[1:], depth - 1)
    return total


def perft_of_game(game, state, depth):
    rows = np.zeros((depth + 1, game.state_size), np.int16)
    rows[0] = state
    return perft_by_address(game.api, rows, np.zeros((depth, game.max_legal), np.int32), depth)


# Moves -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fen", COUNTS)
def test_the_known_counts_of_lines(game, fen):
    for depth, count in enumerate(COUNTS[fen], 1):
        if count > 250_000: break
        assert count_lines(parse_fen(fen), depth) == perft_of_game(game, from_fen(game, fen), depth) == count


def test_lines_of_gardner_against_the_slow_generator(small):
    fens = [FENS[5]]
    rng = np.random.default_rng(7)
    while len(fens) < 12:
        state = small.new()
        for _ in range(rng.integers(4, 40)):
            if small.over(state): break
            state = small.play(state, int(rng.choice(small.legal_actions(state))))
        else: fens.append(to_fen(small, state))
    for fen in fens:
        depth = 4 if fen == FENS[5] else 2
        assert perft_of_game(small, from_fen(small, fen), depth) == slow.perft(slow.read(fen), depth), fen


@pytest.mark.slow
@pytest.mark.parametrize("fen", COUNTS)
def test_the_known_counts_of_longer_lines(game, fen):
    for depth, count in enumerate(COUNTS[fen], 1):
        assert count_lines(parse_fen(fen), depth) == perft_of_game(game, from_fen(game, fen), depth) == count


@pytest.mark.slow
def test_longer_lines_of_gardner_against_the_slow_generator(small):
    assert perft_of_game(small, small.new(), 6) == slow.perft(slow.read(FENS[5]), 6)


def names(game, state): return {move_to_uci(game, state, action) for action in game.legal_actions(state)}


@pytest.mark.parametrize("name", ["chess", GARDNER])
def test_every_move_of_random_games_against_the_slow_generator(name):
    game, rng = get_game(name), np.random.default_rng(11)
    for _ in range(2):
        state = game.new_match()
        for _ in range(120):
            if game.over(state): break
            assert names(game, state) == {slow.uci(move) for move in slow.legal(slow.read(to_fen(game, state)))}
            state = game.play(state, int(rng.choice(game.legal_actions(state))))


# OpenSpiel ---------------------------------------------------------------------------------------

def compare_with_open_spiel(game, twin, rng):
    "Play a random game of both, with all legal moves, repetition, end and result at every ply. Return its end."
    import pyspiel
    state, other = game.new_match(), twin.new_initial_state()
    while True:
        assert game.over(state) == other.is_terminal(), to_fen(game, state)
        assert (state[ENDED] == REPETITION) <= other.is_repetition_draw()
        assert game.returns(state).tolist() == (other.returns()[::-1] if other.is_terminal() else [0, 0])
        if other.is_terminal(): return int(state[ENDED])
        assert game.mover(state) == 1 - other.current_player()   # OpenSpiel's player 1 is White
        assert to_fen(game, state).split()[:3] == str(other).split()[:3]
        board = other.board()
        theirs = {pyspiel.chess.action_to_move(action, board).to_lan(): action for action in other.legal_actions()}
        ours = {move_to_uci(game, state, action): action for action in game.legal_actions(state)}
        assert ours.keys() == theirs.keys(), to_fen(game, state)
        name = sorted(ours)[rng.integers(len(ours))]
        state = game.play(state, ours[name])
        other.apply_action(theirs[name])


def random_games_against_open_spiel(game, games, seed):
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (it has no wheel for Python 3.10)")
    twin, rng = pyspiel.load_game("chess"), np.random.default_rng(seed)
    return [compare_with_open_spiel(game, twin, rng) for _ in range(games)]


def test_random_games_agree_with_open_spiel(game):
    assert len(set(random_games_against_open_spiel(game, 12, seed=1))) > 1


@pytest.mark.slow
def test_a_thousand_random_games_agree_with_open_spiel(game):
    ends = random_games_against_open_spiel(game, 1000, seed=2)
    print(np.bincount(ends))
    assert set(ends) == {1, 2, 3, 4, 5}   # Every end but the cut


def test_the_one_difference_to_open_spiel(game):
    "A pawn passes another that is pinned and cannot take. For us and FIDE (9.2) this position comes back after four plies."
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (it has no wheel for Python 3.10)")
    fen = "8/8/8/8/k1p4R/8/3P4/4K3 w - - 0 1"
    state, other = from_fen(game, fen), pyspiel.load_game("chess").new_initial_state(fen)
    for move in ("d2d4", *("a4a5", "e1e2", "a5a4", "e2e1") * 2):
        assert not game.over(state) and not other.is_terminal()
        state = game.play(state, uci_to_action(game, state, move))
        other.apply_action(other.parse_move_to_action(move))
    assert state[ENDED] == REPETITION and not other.is_terminal()


# python-chess ------------------------------------------------------------------------------------

def random_position(rng, chess):
    "Return a legal position with few pieces, where promotions, pins, mates and dead positions are near."
    while True:
        board = chess.Board(None)
        squares = rng.permutation(64)
        board.set_piece_at(int(squares[0]), chess.Piece(chess.KING, True))
        board.set_piece_at(int(squares[1]), chess.Piece(chess.KING, False))
        for square in squares[2:rng.integers(2, 9)].tolist():
            kind = int(rng.choice([1, 1, 1, 2, 3, 4, 5]))
            if kind > 1 or 0 < square // 8 < 7: board.set_piece_at(square, chess.Piece(kind, bool(rng.integers(2))))
        board.turn = bool(rng.integers(2))
        if board.is_valid() and not board.is_game_over(): return board


def compare_with_python_chess(game, board, rng, chess, plies=60, names_every=2):
    "Play a random game of both from this position, with all legal moves, names of moves, ends and results."
    state, line, over, ended = from_fen(game, board.fen()), [], False, None
    while len(line) < plies:
        assert to_fen(game, state) == board.fen(en_passant="legal")
        ended = board.outcome(claim_draw=False)
        over = ended is not None or board.is_fifty_moves() or board.is_repetition(3)
        assert game.over(state) == over, board.fen()
        if over: break
        moves = {move.uci(): board.san(move) for move in board.legal_moves}
        ours = {move_to_uci(game, state, action): action for action in game.legal_actions(state)}
        assert ours.keys() == moves.keys()
        if len(line) % names_every == 0:
            assert {name: move_to_san(game, state, action) for name, action in ours.items()} == moves
        assert all(uci_to_action(game, state, name) == action == san_to_action(game, state, moves[name])
                   for name, action in list(ours.items())[:3])
        name = sorted(ours)[rng.integers(len(ours))]
        line.append(ours[name])
        state = game.play(state, ours[name])
        board.push_uci(name)
    white = {True: 1, False: -1, None: 0}[ended.winner if over and ended else None]
    assert game.returns(state).tolist() == [white, -white]
    return line


def test_text_ends_and_results_agree_with_python_chess(game):
    chess = pytest.importorskip("chess")
    rng, ends = np.random.default_rng(3), 0
    for number in range(8):
        ends += len(compare_with_python_chess(game, random_position(rng, chess), rng, chess)) < 60
    assert ends


@pytest.mark.slow
def test_many_games_agree_with_python_chess(game):
    chess = pytest.importorskip("chess")
    rng = np.random.default_rng(6)
    for _ in range(200): compare_with_python_chess(game, random_position(rng, chess), rng, chess, 400, names_every=9)
    for _ in range(20): compare_with_python_chess(game, chess.Board(), rng, chess, 400, names_every=9)


def test_python_chess_reads_our_pgn(game):
    chess = pytest.importorskip("chess")
    import chess.pgn
    rng = np.random.default_rng(4)
    for start in (None, "8/P6k/8/8/8/8/p6K/8 b - - 3 40"):
        headers = dict(White="A (name), with: signs", Black="B", **(dict(FEN=start) if start else {}))
        state, line = from_fen(game, start or FENS[8]), []
        while not game.over(state) and len(line) < 60:
            line.append(int(rng.choice(game.legal_actions(state))))
            state = game.play(state, line[-1])
        pgn = write_pgn(game, line, headers)
        theirs = chess.pgn.read_game(io.StringIO(pgn))
        assert not theirs.errors and theirs.headers["White"] == headers["White"]
        assert theirs.end().board().fen(en_passant="legal") == to_fen(game, state)
        back, again = read_pgn(game, pgn)
        assert again == line and back["White"] == headers["White"] and back["Result"] in ("*", "1-0", "0-1", "1/2-1/2")
        with_comments = str(theirs.accept(chess.pgn.StringExporter(headers=True, comments=True)))
        assert read_pgn(game, with_comments)[1] == line
        assert max(map(len, pgn.splitlines())) < 80


# Ends --------------------------------------------------------------------------------------------

def after(game, fen, *moves):
    state = from_fen(game, fen)
    for move in moves: state = game.play(state, uci_to_action(game, state, move))
    return state


def test_a_mate_on_the_hundredth_ply_counts_and_a_quiet_move_draws(game):
    fen = "7k/5K2/8/8/8/8/8/6R1 w - - 99 80"
    assert game.returns(after(game, fen, "g1h1")).tolist() == [1, -1]
    quiet = after(game, fen, "g1a1")
    assert game.over(quiet) and game.returns(quiet).tolist() == [0, 0]
    assert not game.over(after(game, fen.replace("99", "98"), "g1a1"))


def test_the_mate_counts_for_the_player_who_gave_it(game):
    fool = game.new()
    for move in ("f2f3", "e7e5", "g2g4", "d8h4"): fool = game.play(fool, uci_to_action(game, fool, move))
    assert game.mover(fool) == -1 and game.legal_actions(fool) == [] and game.returns(fool).tolist() == [-1, 1]
    assert "checkmate by Black" in game.text(fool)


def test_the_third_occurrence_ends_the_game_and_a_lost_right_makes_another_position(game):
    shuffle = ("g1f3", "g8f6", "f3g1", "f6g8")
    state = game.new()
    for number, move in enumerate(shuffle * 2):
        assert not game.over(state) and state[REPEATS] == (number >= 4)
        state = game.play(state, uci_to_action(game, state, move))
    assert game.over(state) and game.returns(state).tolist() == [0, 0] and state[ENDED] == REPETITION
    fen = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
    rooks = ("a1b1", "a8b8", "b1a1", "b8a8")
    assert not game.over(after(game, fen, *rooks * 2)), "the first position had rights to castle"
    assert game.over(after(game, fen, *rooks * 2, *rooks[:2]))


def test_a_passed_square_counts_in_a_repetition_only_if_a_pawn_can_take(game):
    shuffle = ("b8c6", "g1f3", "c6b8", "f3g1")
    takes = after(game, "rnbqkbnr/ppp1pppp/8/8/3p4/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "e2e4")
    idle = after(game, "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "e2e4")
    for state, ends in ((takes, False), (idle, True)):
        for move in shuffle * 2: state = game.play(state, uci_to_action(game, state, move))
        assert game.over(state) == ends
    pinned = "8/8/8/8/k1p4R/8/3P4/4K3 w - - 0 1"   # Taking would open the rank to the king
    assert to_fen(game, after(game, pinned, "d2d4")).split()[3] == "-"
    named = from_fen(game, "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1")   # No pawn can take there
    assert to_fen(game, named) == to_fen(game, after(game, FENS[8], "e2e4"))
    for move in shuffle * 2: named = game.play(named, uci_to_action(game, named, move))
    assert game.over(named)
    held = "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    assert to_fen(game, from_fen(game, held)).split()[3] == "e3"


@pytest.mark.parametrize("fen, dead", [
    ("4k3/8/8/8/8/8/8/4K3 w - - 0 1", True), ("4k3/8/8/8/8/8/8/4KN2 w - - 0 1", True),
    ("4k1n1/8/8/8/8/8/8/4K3 w - - 0 1", True), ("4kb2/8/8/8/8/8/8/2B1K3 w - - 0 1", True),
    ("4kb2/8/8/8/8/8/8/3BK3 w - - 0 1", False), ("4k3/8/8/8/8/8/8/4KNN1 w - - 0 1", False),
    ("4kn2/8/8/8/8/8/8/4KN2 w - - 0 1", False), ("4k3/8/8/8/8/8/P7/4K3 w - - 0 1", False),
    ("4k3/8/8/8/8/8/8/4K2R w - - 0 1", False), ("4k3/8/8/8/8/8/8/3QK3 w - - 0 1", False)])
def test_material_with_which_nobody_can_mate(game, fen, dead):
    assert game.over(from_fen(game, fen)) == dead


def test_a_fingerprint_tells_positions_apart(game):
    rng, seen = np.random.default_rng(9), {}
    for _ in range(20):
        state = game.new_match()
        for _ in range(80):
            if game.over(state): break
            key = " ".join(to_fen(game, state).split()[:4])
            assert seen.setdefault(fingerprint(state), key) == key
            state = game.play(state, int(rng.choice(game.legal_actions(state))))
    assert len(set(seen.values())) == len(seen) > 1000


def test_a_hundred_quiet_plies_fit_into_the_memory(game):
    "Two kings and two rooks walk about and never come back to a position, until fifty moves are over."
    rng, start = np.random.default_rng(1), from_fen(game, "1r5k/8/8/8/8/8/8/K1R5 w - - 0 1")
    for _ in range(50):
        state = start
        while state is not None and not game.over(state):
            after = [game.play(state, action) for action in game.legal_actions(state)]
            after = [then for then in after if then[CLOCK] and not then[REPEATS] and then[ENDED] in (0, FIFTY_MOVES)]
            state = after[rng.integers(len(after))] if after else None
        if state is not None: break
    assert state[ENDED] == FIFTY_MOVES and state[CLOCK] == state[PLY] == state[KEPT] == HASH_COUNT


# The game and its parameters ---------------------------------------------------------------------

def test_the_games_keep_the_laws(small):
    get_game("chess(max_plies=60)").check(games=1, seed=5)
    get_game("chess(variant=gardner,max_plies=40,cut=draw)").check(games=2, seed=5)


def test_actions_are_alphazeros_and_each_has_its_place_on_a_plane(game, small):
    assert (game.actions, game.shape, small.actions, small.shape) == (4672, (34, 8, 8), 1225, (34, 5, 5))
    for one, planes in ((game, 73), (small, 49)):
        cells = one.shape[1] * one.shape[2]
        assert sorted(one.cells.tolist()) == list(range(one.actions))
        for action in one.legal_actions(one.new()):
            start = int(move_of(one.shape[1], action)) >> 8
            assert one.cells[action] % cells == start // 8 * one.shape[1] + start % 8 and one.cells[action] // cells < planes


def test_both_sides_see_the_same_board(game):
    "White to move and the same position for Black have the same observation but for the side, and the same actions."
    fen = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w Kq - 3 9"
    pieces, _, _, passed, clock, move = fen.split()
    turned = " ".join(["/".join(pieces.split("/")[::-1]).swapcase(), "b", "Qk", passed, clock, move])
    one, two = from_fen(game, fen), from_fen(game, turned)
    assert game.legal_actions(one) == game.legal_actions(two)
    assert np.flatnonzero((game.observe(one) != game.observe(two)).any((1, 2))).tolist() == [31]


def test_the_observation_shows_the_position_and_the_one_before(game):
    state = game.state_after([game.legal_actions(game.new())[0]])
    planes, first = game.observe(state), game.observe(game.new())
    assert planes.dtype == np.int8 and first[13:26].sum() == 0
    assert np.array_equal(planes[13:19], first[6:12, ::-1]) and np.array_equal(planes[19:25], first[:6, ::-1])
    assert planes[:6].sum() == planes[6:12].sum() == 16 and (planes[26:30] == 1).all() and (planes[31] == 1).all()
    late = from_fen(game, "4k3/8/8/8/8/8/4P3/4K2R w - - 57 90")
    assert (game.observe(late)[32] == 5).all() and game.observe(late)[26:30].sum() == 0


@pytest.mark.parametrize("name, canonical", {
    "chess": "chess", "chess(variant=standard,cut=material,max_plies=100)": "chess",
    "chess( max_plies = 40 , cut=draw,variant=gardner)": "chess(variant=gardner,max_plies=40,cut=draw)",
    "chess(fen=8/5k2/8/8/8/8/4P3/4K3 w)": None,
    "chess(fen=8/5k2/8/8/8/8/4P3/4K3 w - -)": "chess(fen=8/5k2/8/8/8/8/4P3/4K3 w - - 0 1)",
    "chess(variant=gardner,fen=rnbqk/ppppp/5/PPPPP/RNBQK w - - 0 1)": "chess(variant=gardner)",
}.items())
def test_names_carry_the_parameters(name, canonical):
    if canonical is None:
        with pytest.raises(ValueError, match="2 fields instead of 6"): get_game(name)
        return
    game = get_game(name)
    assert game.name == get_game(game.name).name == pickle.loads(pickle.dumps(game)).name == canonical
    assert get_game("chess(max_plies=60)").max_length == 60


@pytest.mark.parametrize("name, words", {
    "chess(variant=gardener)": ["variant 'gardener'", "Did you mean 'gardner'?"],
    "chess(max_plies=0)": ["max_plies is 0", "1 to 10000"], "chess(max_plies=many)": ["'many'"],
    "chess(cut=win)": ["'win'", "draw or material"], "chess(size=6)": ["no parameter 'size'"],
    "chess(fen=7k/5Q2/6K1/8/8/8/8/8 b - - 0 1)": ["the game is over", "stalemate"],
}.items())
def test_a_wrong_parameter_is_named(name, words):
    with pytest.raises(ValueError) as error: get_game(name)
    assert all(word in str(error.value) for word in words), str(error.value)


def play_through(game, state):
    "Play the first legal action until the game is over."
    while not game.over(state): state = game.play(state, game.legal_actions(state)[0])
    return state


def test_a_cut_game_counts_material_in_training_and_is_a_draw_in_a_match():
    fen, ends = "4k3/8/8/8/8/8/PP6/R3K3 b - - 0 1", {}
    for cut in ("draw", "material"):
        game = get_game(f"chess(fen={fen},max_plies=5,cut={cut})")
        state = play_through(game, game.new())
        assert state[ENDED] == LENGTH and len(game.states_of([])) == 1
        ends[cut] = game.returns(state).tolist()
    assert ends["draw"] == [0, 0] and ends["material"] == pytest.approx([7 / 12, -7 / 12])
    match = game.new_match()
    for _ in range(5): match = game.play(match, game.legal_actions(match)[0])
    assert not game.over(match), "a match goes on where training cuts"
    match[PLY] = 1023
    last = game.play(match, game.legal_actions(match)[0])
    assert last[ENDED] == LENGTH and game.returns(last).tolist() == [0, 0]


def test_matches_follow_the_rules_of_chess():
    "Training cuts these games after two plies with a queen more for White. The match plays them to their ends."
    game = get_game("chess(variant=gardner,fen=4k/5/5/5/KQ3 w - - 0 1,max_plies=8)")
    result = play_match(game, RandomPlayer(game, 1), RandomPlayer(game, 2), games=4)
    assert (result.lengths > 8).any()


def test_self_play_plays_chess(small):
    "Records follow the rules, and the games come back from PGN. Those that training cuts are unfinished there."
    game = get_game("chess(variant=gardner,max_plies=40)")
    network = PolicyValueNet(game, preset="tiny")
    with SelfPlayEngine(game, network, device="cpu", simulations=8, games=8, threads=1, seed=3) as engine:
        records = engine.generate_games(8)
    check_records(game, records)
    for record in records:
        headers, actions = read_pgn(game, write_pgn(game, record.actions, dict(Event="self-play")))
        assert actions == record.actions.tolist()
        cut = game.state_after(actions)[ENDED] == LENGTH
        assert (headers["Result"] == "*") == cut
        if not cut: assert record.outcome[0] == {"1-0": 1, "0-1": -1, "1/2-1/2": 0}[headers["Result"]]


def test_other_games_have_no_other_match():
    game = get_game("tictactoe")
    assert np.array_equal(game.new_match(), game.new())


# FEN ---------------------------------------------------------------------------------------------

WRONG = {
    "": "0 fields", "8/8/8/8/8/8/8/8": "1 fields", "8/8/8/8/8/8/8/8 w - - 0": "0 kings",
    "4k3/8/8/8/8/8/4K3 w - - 0 1": "7 ranks instead of 8",
    "4k3/8/8/8/8/8/8/4K4 w - - 0 1": "rank 1 has 9 squares", "4k3/8/8/8/8/8/7/4K3 w - - 0 1": "rank 2 has 7 squares",
    "4k3/8/8/8/8/8/8/4KX2 w - - 0 1": "'X' in rank 1", "4k3/9/8/8/8/8/8/4K3 w - - 0 1": "'9' in rank 7",
    "8/8/8/8/8/8/8/4K3 w - - 0 1": "Black has 0 kings", "4k3/8/8/8/8/8/8/3KK3 w - - 0 1": "White has 2 kings",
    "4k3/8/8/8/8/8/8/4K2P w - - 0 1": "a pawn stands on h1", "p3k3/8/8/8/8/8/8/4K3 w - - 0 1": "a pawn stands on a8",
    "4k3/PPPPPPPP/P7/8/8/8/8/4K3 w - - 0 1": "White has 9 pawns",
    "4k3/pppppppp/8/8/8/8/8/qq2K3 w - - 0 1": "Black has 8 pawns and 1 pieces more",
    "4k3/8/8/8/8/8/8/4K3 x - - 0 1": "'x' instead of w or b",
    "4k3/8/8/8/8/8/8/4K2R w KX - 0 1": "castling rights are 'KX'", "4k3/8/8/8/8/8/8/4K2R w K- - 0 1": "'K-'",
    "4k3/8/8/8/8/8/8/4K3 w - e9 0 1": "'e9' instead of - or a square",
    "4k3/8/8/8/8/8/8/4K3 w - - x 1": "'x' instead of a number",
    "4k3/8/8/8/8/8/8/4K3 w - - 0 -1": "'-1' instead of a number",
    "4k3/8/8/8/8/8/8/4K3 w - - 0 12345678901": "instead of a number",
    "4k3/4R3/8/8/8/8/8/4K3 w - - 0 1": "White is to move and could take the king",
    "3k4/3K4/8/8/8/8/8/8 b - - 0 1": "Black is to move and could take the king"}


@pytest.mark.parametrize("fen", WRONG)
def test_a_wrong_fen_is_one_sentence_that_names_the_mistake(game, fen):
    for read in (lambda: from_fen(game, fen), lambda: parse_fen(fen)):
        with pytest.raises(ValueError) as error: read()
        assert WRONG[fen] in str(error.value) and repr(fen) in str(error.value), str(error.value)
        assert str(error.value).endswith(".") and "\n" not in str(error.value)


@pytest.mark.parametrize("fen, words", {
    "rnbqk/ppppp/5/PPPPP/RNBQK w K - 0 1": "no castling on this board",
    "rnbqk/pppp1/4p/PPPPP/RNBQK w - e4 0 1": "no pawn moves two squares", FENS[8]: "8 ranks instead of 5",
    "rnbqk/ppppp/5/PPPP1/RNBQKB w - - 0 1": "rank 1 has 6", "qqqqk/ppp2/5/5/4K w - - 0 1": "3 pawns and 3 pieces more",
}.items())
def test_a_wrong_fen_of_gardner(small, fen, words):
    with pytest.raises(ValueError, match=words): from_fen(small, fen)


def test_a_legal_fen_comes_back(game, small):
    for one, fens in ((game, COUNTS), (small, [FENS[5], "r1bqk/ppppp/2n2/PPPPP/RNBQK w - - 1 2"])):
        for fen in fens: assert to_fen(one, from_fen(one, fen)) == fen
    assert to_fen(game, from_fen(game, " ".join(FENS[8].split()[:4]))) == FENS[8]


# Moves and games as text -------------------------------------------------------------------------

@pytest.mark.parametrize("move, words", {
    "e2e5": "the piece on e2 can go to: e3, e4", "e3e4": "there is no piece on e3", "e7e5": "White is to move",
    "e2e4q": "no promotion", "hello": "is not a move", "": "is not a move", "e2": "is not a move", "0000": "is not a move",
    "e1e2": "the piece on e1 can go to: nowhere", "e2i4": "is not a move", "e2 e4": "is not a move"}.items())
def test_a_wrong_move_in_uci_is_named(game, move, words):
    with pytest.raises(ValueError) as error: uci_to_action(game, game.new(), move)
    assert words in str(error.value) and repr(move) in str(error.value), str(error.value)


def test_a_wrong_promotion_and_a_move_into_check_are_named(game):
    state = from_fen(game, "8/P6k/8/8/8/8/7r/K7 w - - 0 1")
    for move, words in dict(a7a8="must become something", a7a8k="cannot become 'k'", a1b2="can go to: b1").items():
        with pytest.raises(ValueError, match=words): uci_to_action(game, state, move)
    check = from_fen(game, "4k3/8/8/8/8/8/4r3/P3K3 w - - 0 1".replace("P3", "R3"))
    with pytest.raises(ValueError, match="White's king would be in check"): uci_to_action(game, check, "a1a2")


@pytest.mark.parametrize("text, uci", {
    "e8Q": "e7e8q", "e8=N+": "e7e8n", "exd8=Q": "e7d8q", "O-O": "e1g1", "0-0-0": "e1c1", "Rh1-h8": "h1h8", "Rh1h9": None, "Rxh8": "h1h8",
    "Rhf1": "h1f1", "Rf1": "h1f1", "Kf1!?": "e1f1"}.items())
def test_san_is_read_tolerantly(game, text, uci):
    state = from_fen(game, "3n3r/4P3/8/8/6k1/8/8/R3K2R w KQ - 0 1")
    if uci is None:
        with pytest.raises(ValueError, match="not a move in SAN"): san_to_action(game, state, text)
    else: assert move_to_uci(game, state, san_to_action(game, state, text)) == uci


def test_san_with_more_than_one_meaning_or_none_is_refused(game):
    state = from_fen(game, "4k3/8/8/8/8/8/8/R4RK1 w - - 0 1")
    with pytest.raises(ValueError, match="more than one meaning.*a1d1.*f1d1"): san_to_action(game, state, "Rd1")
    with pytest.raises(ValueError, match="'Qd1' is not legal.*Rad1"): san_to_action(game, state, "Qd1")


@pytest.mark.parametrize("text, words", {
    "": "no game", "1. e4 e5 2. Ke3": "at move 2. Ke3", "1. e4 {no end": "comment", "1. e4 (1. d4": "variation",
    '[FEN "8/8 w - - 0 1"]\n\n1. e4': "2 ranks"}.items())
def test_a_wrong_pgn_is_named(game, text, words):
    with pytest.raises(ValueError, match=words): read_pgn(game, text)


def test_a_header_with_quotes_comes_back(game):
    headers = dict(White='A "quoted" \\ name', Event="two\nlines")
    assert read_pgn(game, write_pgn(game, [], headers))[0]["White"] == headers["White"]
    assert read_pgn(game, write_pgn(game, [], headers))[0]["Event"] == "two lines"


def test_headers_keep_their_letters_and_the_result_does_not(game):
    "Dashes and figures are spelt in many ways, which matters for moves alone."
    text = write_pgn(game, [], dict(Event="Wien \u2013 Graz", White="\u2658 & \u00bd")).replace('[Result "*"]', '[Result "\u00bd\u2013\u00bd"]')
    headers, actions = read_pgn(game, text.rstrip().removesuffix("*") + "1. \u2658f3 \u00bd\u2013\u00bd")
    assert (headers["Event"], headers["White"], headers["Result"]) == ("Wien \u2013 Graz", "\u2658 & \u00bd", "1/2-1/2")
    assert [move_to_san(game, game.new(), action) for action in actions] == ["Nf3"]


def test_a_match_that_is_cut_is_a_draw_in_its_pgn():
    "The moves before the start count for the limit of a match, and its FEN does not have them."
    game = get_game("chess")
    start = game.new_match()
    start[PLY] = 1023
    match = SimpleNamespace(player="a", opponent="b", games=[PlayedGame(("a", "b"), start, [game.legal_actions(start)[0]])])
    assert game.over(game.play(start, game.legal_actions(start)[0])) and '[Result "1/2-1/2"]' in match_pgn(game, match)


def test_a_match_is_written_for_other_programs(game, small):
    chess = pytest.importorskip("chess")
    import chess.pgn
    match = play_match(game, RandomPlayer(game, 1), RandomPlayer(game, 2), games=2)
    text = io.StringIO(match_pgn(game, match, Date="2030.01.02"))
    for played, score in zip(match.games, match.scores):
        theirs = chess.pgn.read_game(text)
        assert not theirs.errors and theirs.headers["Date"] == "2030.01.02"
        assert len(list(theirs.mainline_moves())) == len(played.actions)
        white = {"1-0": 1, "0-1": 0, "1/2-1/2": .5}[theirs.headers["Result"]]
        assert theirs.headers["White"] == played.players[0] and score == (white if played is match.games[0] else 1 - white)
    assert chess.pgn.read_game(text) is None
    with pytest.raises(ValueError, match="tictactoe has no PGN"): match_pgn(get_game("tictactoe"), match)


def test_moves_have_their_names_in_a_position_and_chess_is_known(game, small):
    state = from_fen(game, "8/P6k/8/8/8/8/7p/K7 b - - 0 1")
    assert {game.move_name(state, action) for action in game.legal_actions(state)} >= {"h7h8", "h2h1q", "h2h1n"}
    for one in (game, small):
        for action in range(one.actions): assert one.move_name(one.new(), action)   # Any action has a name, legal or not
    assert [is_chess(one) for one in (game, small, get_game("tictactoe"))] == [True, True, False]


def test_chess_defined_in_a_notebook_is_chess():
    "A page that has been run makes its own copy of the game, which is chess, though not the game of the package."
    from alphazero_nb.games import chess as library
    spec = importlib.util.spec_from_file_location("chess_of_a_notebook", library.__file__)
    copy = importlib.util.module_from_spec(spec)
    copy.__package__ = library.__package__
    spec.loader.exec_module(copy)
    game = copy.chess(variant="gardner")
    assert game.home == "chess_of_a_notebook" and game.name == GARDNER and is_chess(game) and not game.packaged
    match = play_match(game, RandomPlayer(game, 1), RandomPlayer(game, 2), games=1)
    assert match_pgn(game, match).count("[FEN") == len(match.games)
    assert get_game(GARDNER).packaged


def test_a_pgn_of_an_unfinished_game_keeps_its_result(game):
    line = [uci_to_action(game, game.new(), "e2e4")]
    assert "1. e4 *" in write_pgn(game, line)
    assert write_pgn(game, line, dict(Result="0-1", Termination="time forfeit")).strip().endswith("1. e4 0-1")
    with pytest.raises(ValueError, match="'black'"): write_pgn(game, line, dict(Result="black"))
