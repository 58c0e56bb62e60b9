"""GNU Backgammon in the arena: what it is asked, which turn is played, how each way to fail ends, and the real program."""
import io
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alphazero_nb.arena.external import EngineFailed, EngineProcess
from alphazero_nb.arena.external_gnubg import AT_ONCE, BRIDGE, GnubgEngine, GnubgPlayer, board_text
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player, names_program
from alphazero_nb.core.registry import get_game
from alphazero_nb.games.backgammon import BAR, OFF, position, side, turns
from processes import no_child_left

STUB = Path(__file__).resolve().parents[1] / "gnubg_stub.py"
START = {24: 2, 13: 5, 8: 3, 6: 5}


@pytest.fixture
def stub(tmp_path):
    "The command of a stub that behaves in a certain way; its commands go to `log`. No process may be left."
    with no_child_left(): yield lambda mode: shlex.join([sys.executable, str(STUB), mode, str(tmp_path / "log")])


def places(state, seat): return state[side(seat):side(seat) + 26].tolist()


def race(game, state, seat, gammons):
    "What the stand-in thinks of a position at the end of a turn of this seat, from our own numbers."
    if game.over(state): return game.measures(state)["points"][seat]
    pips = [sum(place * count for place, count in enumerate(places(state, other))) for other in (seat, 1 - seat)]
    lead = (pips[0] - pips[1]) / 400   # Of the other seat, which rolls
    return -lead ** 3 if gammons else -2 * lead


def played_turns(game, played, name):
    "Each turn of a player in a game of a match: the position at its beginning and at its end, and the seat."
    state, begin = played.start, None
    for action in played.actions:
        seat = game.mover(state)
        if begin is None and seat >= 0 and played.players[seat] == name: begin = state, seat
        state = game.play(state, action)
        if begin and game.mover(state) != begin[1]:
            yield begin[0], state, begin[1]
            begin = None


@pytest.mark.parametrize("gammons", [1, 0])
def test_every_turn_is_the_best_of_all(stub, gammons):
    game = get_game("backgammon" if gammons else "backgammon(gammons=0)")
    player = get_player(f"gnubg:{stub('race')}", game)
    assert player.name.startswith("gnubg:") and player.name.endswith("?plies=0") and names_program(player.name)
    assert player.engine.title == "GNU Backgammon 9.99"
    try: result = play_match(game, player, get_player("random", game, seed=1), 6)
    finally: player.close()
    count = 0
    for played in result.games:
        for begin, end, seat in played_turns(game, played, player.name):
            best = max(race(game, row, seat, gammons) for row, _ in turns(game, begin).values())
            assert race(game, end, seat, gammons) == pytest.approx(best, abs=1e-6)
            count += 1
    assert count > 100 and result.score > .5


def test_nobody_is_asked_twice_or_without_a_choice(stub, tmp_path):
    game = get_game("backgammon")
    player = get_player(f"gnubg:{stub('race')}?plies=2", game)
    try:
        one = position({BAR: 1, 13: 5}, {place: 2 for place in range(1, 7)}, (6, 5))
        assert game.move_name(one, player.act(one)) == "pass" and not (tmp_path / "log").read_text()
        for dice in ((3, 1), (3, 1), (2, 2)):
            state = position(START, START, dice)
            while game.mover(state) == 0: state = game.play(state, player.act(state))
    finally: player.close()
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    boards = [board for _, plies, *boards in lines for board in boards]
    assert [number for number, *_ in lines] == [str(k + 1) for k in range(len(lines))] and {plies for _, plies, *_ in lines} == {"2"}
    want = {board_text(row, 1) for dice in ((3, 1), (2, 2)) for row, _ in turns(game, position(START, START, dice)).values()}
    assert len(boards) == len(set(boards)) and set(boards) == want


def test_a_request_is_short(stub, tmp_path):
    boards = [f"{k:x}".rjust(50, "0") for k in range(1, 3 * AT_ONCE)]
    with GnubgEngine(stub("race")) as engine: found = engine.values(boards, 1)
    lines = (tmp_path / "log").read_text().splitlines()
    assert found.shape == (len(boards), 2) and len(lines) == 3 and max(map(len, lines)) < 6000
    with GnubgEngine(stub("race")) as engine: assert engine.values([]).shape == (0, 2)


def test_boards_are_seen_by_the_player_who_rolls():
    state = position({BAR: 2, 3: 1}, {1: 15}, (2, 1))
    mine, theirs = "001" + "0" * 21 + "2", "f" + "0" * 24
    assert board_text(state, 1) == mine + theirs and board_text(state, 0) == theirs + mine


def test_the_bridge_asks_about_each_board(monkeypatch, capsys):
    "The script that runs inside the program, with a module in place of the program's own."
    asked = []

    def evaluate(board, cube, context):
        if sum(board[0]) > 15: raise ValueError("board is\nnot legal")
        asked.append((board, context["plies"], context["cubeful"]))
        return .75, 0, 0, 0, 0, -.5
    module = SimpleNamespace(command=lambda text: None, cubeinfo=lambda *_: None, evaluate=evaluate)
    monkeypatch.setitem(sys.modules, "gnubg", module)
    board = board_text(position({BAR: 2, 3: 1}, {1: 15}, (2, 1)), 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"1 2 {board}\n2 0 {'f' * 50}\nquit\n"))
    exec(compile(BRIDGE, "bridge", "exec"), {})
    assert capsys.readouterr().out == "bridge ready\nbridge 1 0.7500000:-0.5000000\nbridge 2 ? board is not legal\n"
    assert asked == [(((0, 0, 1, *[0] * 21, 2), (15, *[0] * 24)), 2, 0)]


@pytest.mark.parametrize("mode", ["late", "chatter"])
def test_an_answer_is_known_by_its_number(stub, mode):
    boards = [board_text(position(START, START, (2, 1)), 1)]
    with GnubgEngine(stub(mode)) as engine:
        for _ in range(3): assert engine.values(boards).tolist() == [[.5, 0]]


@pytest.mark.parametrize("mode, words", [
    ("hang", r"did not answer a question about \d+ positions within 0.5 s"),
    ("deaf", r"did not answer a question about \d+ positions within 0.5 s"),
    ("die", r"died after a question about \d+ positions \(exit code 1\); it said: out of checkers\.$"),
    ("refuse", r"refused a question about \d+ positions: board is not legal\.$"),
    ("short", "which is not a probability and an equity for each"), ("nan", "answered 'nan:nan .*not a probability"),
    ("large", "answered '0.5:9 .*not a probability"), ("words", "answered 'I win' .*not a probability"),
])
def test_a_program_that_fails(stub, mode, words, monkeypatch):
    if mode in ("hang", "deaf"): monkeypatch.setattr(GnubgPlayer, "patience_s", .5)
    player = get_player(f"gnubg:{stub(mode)}", get_game("backgammon"))
    with pytest.raises(EngineFailed, match=words) as caught: player.act(position(START, START, (3, 1)))
    assert "\n" not in str(caught.value) and "gnubg_stub.py" in str(caught.value) and "bridge.py" not in str(caught.value)
    player.close()   # Once more does no harm


def test_a_program_that_is_never_ready(stub):
    with pytest.raises(EngineFailed, match="did not answer its start with 'bridge ready' within 0.5 s"): GnubgEngine(stub("silent"), .5)


@pytest.mark.parametrize("name, game, words", [
    ("gnubg:", "backgammon", "gnubg: needs a command; write for example gnubg:gnubg"),
    ("gnubg:x?plies=3", "backgammon", "may end in .plies=0, 1 or 2, and in nothing else"),
    ("gnubg:x?plies=two", "backgammon", "may end in .plies=0, 1 or 2, and in nothing else"),
    ("gnubg:x?noise=1", "backgammon", "may end in .plies=0, 1 or 2, and in nothing else"),
    ("gnubg:x?movetime=100", "backgammon", "may end in .plies=0, 1 or 2, and in nothing else"),
    ("gnubg:x?depth=2", "backgammon", "may end in .plies=0, 1 or 2, and in nothing else"),
    ("gnubg:x", "pig", "plays backgammon, and the game is pig"),
    ("gnubg:no-such-program", "backgammon", "'no-such-program.*' did not start: No such file or directory"),
    ("gnubg:true", "backgammon", "'true' (died after|closed its output after) its start"),
])
def test_bad_names_say_what_is_wrong(name, game, words):
    with pytest.raises(ValueError, match=words) as caught: get_player(name, get_game(game))
    assert "\n" not in str(caught.value)


# The real program, where it is installed -----------------------------------------------------------

ORACLE = """
import gnubg, sys
gnubg.command("set jacoby off")
cube = gnubg.cubeinfo(1, -1, 0, 0, (0, 0), 0)
context = dict(cubeful=0, plies=0, deterministic=1, prune=0, noise=0.0)
print("oracle ready", flush=True)
for line in iter(sys.stdin.readline, ""):
    text, high, low = line.split() if line.count(" ") else ("", 0, 0)
    if not text: break
    board = tuple(tuple(int(digit, 16) for digit in half) for half in (text[:25], text[25:]))
    print("oracle", *gnubg.findbestmove(board, cube, context, (int(high), int(low))), flush=True)
"""


def installed():
    found = shutil.which("gnubg") or shutil.which("gnubg", path="/usr/games")
    if found is None: pytest.skip("gnubg is not installed")
    return found


def next_line(process, word):
    return next(line.split()[1:] for line in process.lines(60) if line.startswith(word))


def moved(state, seat, numbers):
    "The position after a move of the program: pairs of places from the mover's view, 0 for off."
    row = state.copy()
    for origin, target in zip(numbers[::2], numbers[1::2]):
        if origin == target == 0: break
        row[side(seat) + origin] -= 1
        row[side(seat) + max(0, target)] += 1
        if target > 0 and row[side(1 - seat) + 25 - target] == 1:
            row[side(1 - seat) + 25 - target] = 0
            row[side(1 - seat) + BAR] += 1
    return row


def test_our_turn_is_as_good_as_the_programs_own(tmp_path):
    "In 30 positions of games that it plays, its own best move at 0 plies leads to a position of the same equity."
    command, game, rng = installed(), get_game("backgammon"), np.random.default_rng(6)
    script = tmp_path / "oracle.py"
    script.write_text(ORACLE, encoding="utf-8")
    player, compared, same = GnubgPlayer(game, command), 0, 0
    with EngineProcess(f"{command} -t -q -r -p {shlex.quote(str(script))}") as oracle:
        next_line(oracle, "oracle ready")
        for seed in range(100):
            state, rolls = game.new(seed), 0
            while not game.over(state) and compared < 30:
                seat, begin = game.mover(state), state
                dice = state[2:4].tolist() if state[3] else [int(state[2])] * 2
                asked = rng.random() < .25 and len(turns(game, begin)) > 1
                if asked:
                    oracle.send(f"{board_text(begin, seat)} {dice[0]} {dice[1]}")
                    theirs = moved(begin, seat, [int(number) for number in next_line(oracle, "oracle")])
                    ends = [row for row, _ in turns(game, begin).values()]
                    values, boards = player.values(ends, seat), [(places(row, 0), places(row, 1)) for row in ends]
                    at = boards.index((places(theirs, 0), places(theirs, 1)))   # A legal turn of ours
                    assert values[at] == pytest.approx(values.max(), abs=1e-5), (game.text(begin), dice)
                    compared, same = compared + 1, same + (at == values.argmax())
                while game.mover(state) == seat:   # Most moves are random, so that positions differ
                    legal = game.legal_actions(state)
                    state = game.play(state, player.act(state) if asked and rng.random() < .5 else int(rng.choice(legal)))
                state, rolled = game.pass_chance(state, seed, rolls)
                rolls += len(rolled)
    player.close()
    assert compared == 30 and same > 26


def test_the_program_beats_random_moves_and_sees_a_won_game():
    game = get_game("backgammon")
    with GnubgEngine(installed()) as engine:
        assert engine.title.startswith("GNU Backgammon")
        won = board_text(position({23: 15}, {1: 1}, (2, 1)), 1)   # The seat that rolls takes its last checker off
        for plies in range(3):
            win, equity = engine.values([won], plies)[0]
            assert win == pytest.approx(1) and equity == pytest.approx(3, abs=.01)
        with pytest.raises(EngineFailed, match="refused a question about 1 position"): engine.values(["z" * 50])
    player = get_player(f"gnubg:{installed()}", game)
    try: result = play_match(game, player, get_player("random", game, seed=2), 2)
    finally: player.close()
    assert result.score == 1


@pytest.mark.parametrize("plies", [1, 2])
def test_more_plies_play_a_turn(plies):
    game = get_game("backgammon")
    player = get_player(f"gnubg:{installed()}?plies={plies}", game)
    try:
        state = position(START, START, (3, 1))
        while game.mover(state) == 0: state = game.play(state, player.act(state))
    finally: player.close()
    assert places(state, 0)[5] == 2 and places(state, 0)[OFF] == 0
