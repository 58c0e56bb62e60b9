"""External UCI programs in the arena: the commands that they get, and how each way to fail ends."""
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

chess = pytest.importorskip("chess", reason="python-chess is the reference of these tests")

from alphazero_nb.arena import external
from alphazero_nb.arena.external import EngineFailed, ProgramPlayer, UciEngine, UciPlayer, _words, read_spec
from alphazero_nb.arena.matches import play_match
from alphazero_nb.arena.players import get_player
from alphazero_nb.cli import main
from alphazero_nb.core.registry import get_game
from alphazero_nb.games import chess_text
from processes import children, no_child_left
import uci_clock
from uci_clock import play_clocked

STUB = Path(__file__).resolve().parents[1] / "uci_stub.py"
QUEENS = "chess(fen=8/7k/8/8/8/8/RQR5/K7 w - - 0 1)"   # Random moves and an eye for mates end such a game soon


@pytest.fixture
def stub(tmp_path):
    "The command of a stub that behaves in a certain way; its commands go to `log`. No process may be left."
    with no_child_left(): yield lambda mode: shlex.join([sys.executable, str(STUB), mode, str(tmp_path / "log")])


def commands(tmp_path, word): return [line.split() for line in (tmp_path / "log").read_text("utf-8").splitlines() if line.startswith(word)]


def test_limits_are_part_of_the_name(stub):
    players = [get_player(f"uci:{stub('fair')}?nodes={nodes}", get_game(QUEENS)) for nodes in (1, 9)]
    for player in players: player.close()
    assert len({player.name for player in players}) == 2


def test_a_match_against_a_program(stub, tmp_path):
    "Every game is told from its beginning, with all moves; options and limits arrive."
    game = get_game(QUEENS)
    player = get_player(f"uci:{stub('fair')}?skill level=7&Style=wild&nodes=3&movetime=20", game)
    try: result = play_match(game, player, get_player("random", game, seed=1), 4)
    finally: player.close()
    assert len(result.scores) == 4 and result.score >= .5 and player.name.startswith("uci:")
    assert ["setoption", "name", "Skill", "Level", "value", "7"] in commands(tmp_path, "setoption")
    assert ["setoption", "name", "Style", "value", "wild"] in commands(tmp_path, "setoption")
    assert {" ".join(words) for words in commands(tmp_path, "go")} == {"go movetime 20 nodes 3"}
    told = [" ".join(words) for words in commands(tmp_path, "position")]
    begun = {text for text in told if "moves" not in text}
    assert len(commands(tmp_path, "ucinewgame")) == len([text for text in told if "moves" not in text]) == 4
    for text in told:   # The moves of each position are those of an earlier one, and two more
        head, _, moves = text.partition(" moves ")
        assert head in begun and (not moves or len(moves.split()) % 2 == 0)
        if len(moves.split()) > 2: assert f"{head} moves {' '.join(moves.split()[:-2])}" in told


@pytest.mark.parametrize("mode, words", [
    ("hang", "did not answer 'go movetime 10' with 'bestmove' within"),
    ("die", r"died after 'go movetime 10' \(exit code 3\); it said: out of luck\.$"),
    ("illegal", "answered 'a1a8', which is not a legal move in "),
    ("empty", "answered '', which is not a legal move in "),
])
def test_a_program_that_fails_during_a_match(stub, mode, words, monkeypatch):
    if mode == "hang": monkeypatch.setattr(UciPlayer, "patience_s", .5)
    game = get_game(QUEENS)
    player = get_player(f"uci:{stub(mode)}?movetime=10", game)
    with pytest.raises(EngineFailed, match=words) as caught: play_match(game, player, get_player("random", game), 4)
    assert "\n" not in str(caught.value) and "uci_stub.py" in str(caught.value)
    player.close()   # Once more does no harm


@pytest.mark.parametrize("command, words", [
    ("no-such-program-anywhere", "'no-such-program-anywhere' did not start: No such file or directory"),
    ("'unbalanced", "did not start: No closing quotation"),
    ("/etc", "did not start: "),
])
def test_a_program_that_does_not_exist(command, words):
    with pytest.raises(EngineFailed, match=words) as caught: UciEngine(command)
    assert "\n" not in str(caught.value)


def test_a_program_that_never_speaks_or_ends_at_once(stub):
    with pytest.raises(EngineFailed, match="did not answer 'uci' with 'uciok' within 0.4 s"): UciEngine(stub("mute"), start_s=.4)
    with pytest.raises(EngineFailed, match=r"died after 'uci' \(exit code 1\); it said: no licence"): UciEngine(stub("early"))


@pytest.mark.parametrize("mode", ["fair", "stubborn", "family"])
def test_closing_ends_the_program_and_whatever_it_has_started(stub, mode):
    with UciEngine(stub(mode)) as engine:
        engine.ready()
        family = children(engine.process.pid)
        assert bool(family) == (mode == "family")
    assert engine.process.returncode is not None
    psutil.wait_procs(family, timeout=900)   # A killed process takes a moment to end
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)


def test_closing_does_not_wait_for_a_process_that_holds_the_streams_open(stub):
    "The program has started one outside its group, which has its output and its errors."
    engine = UciEngine(stub("escape"))
    left, = children(engine.process.pid)
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(600)
    waits = closing.is_alive()
    left.kill()
    assert not waits and engine.process.returncode is not None


@pytest.mark.parametrize("fen, first", [("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1g1 e1c1"), ("8/P6k/8/8/8/8/8/K7 w - - 0 1", "a7a8q a7a8r a7a8b a7a8n")])
def test_a_program_may_spell_its_moves_in_its_own_way(stub, fen, first):
    "It castles as the king takes the rook, and writes capitals. python-chess gets the moves from us, and would refuse wrong ones."
    game = get_game(f"chess(fen={fen})")
    with UciEngine(stub("careless")) as one, UciEngine(stub("careless")) as two:
        played = play_clocked(game, (one, two), 600, 1)
    moves, state = [], game.new_match()
    for action in played.actions:
        moves.append(chess_text.move_to_uci(game, state, action))
        state = game.play(state, action)
    assert played.ending == "" and moves[0] in first.split() and game.over(state)


def test_a_second_interrupt_while_closing_still_ends_the_program(stub):
    engine = UciEngine(stub("stubborn"))
    wait = engine.process.wait

    def interrupted(limit_s):
        engine.process.wait = wait
        raise KeyboardInterrupt
    engine.process.wait = interrupted
    try:
        with pytest.raises(KeyboardInterrupt): engine.close()
        assert engine.process.returncode is not None
    finally: engine.process.kill()   # Does nothing to one that has ended


def test_an_interrupt_between_a_question_and_its_answer_leaves_no_answer_behind(stub, tmp_path):
    "In the middle of a game, where the program is not asked whether it is ready."
    game = get_game("chess")
    player = get_player(f"uci:{stub('fair')}?movetime=10", game)
    send, state = player.engine.send, game.new_match()

    def stopped(line):
        send(line)
        if line.startswith("go"): raise KeyboardInterrupt

    def act():
        action, late = player.act(state), []
        send("isready")
        player.engine.wait_for("readyok", 600, late.append)
        assert action in game.legal_actions(state) and not late
        return game.play(game.play(state, action), game.legal_actions(game.play(state, action))[0])
    try:
        state = act()
        player.engine.send = stopped
        with pytest.raises(KeyboardInterrupt): player.act(state)
        player.engine.send = send
        for _ in range(4): state = act()
    finally: player.close()
    assert len(commands(tmp_path, "stop")) == 1 and len(commands(tmp_path, "ucinewgame")) == 1


def test_a_new_game_after_an_interrupt_begins_with_a_program_at_rest(stub, tmp_path):
    game = get_game("chess")
    player = get_player(f"uci:{stub('fair')}?movetime=10", game)
    player.engine.send("go movetime 10")
    player.engine.unanswered = True
    player.act(game.new_match())
    player.close()
    told = [line.split()[0] for line in (tmp_path / "log").read_text("utf-8").splitlines()]
    assert told[told.index("go"):][:6] == ["go", "stop", "ucinewgame", "isready", "position", "go"]


def test_a_program_can_be_ended_where_there_is_no_signal_to_kill_it_with(stub, monkeypatch):
    monkeypatch.setattr(external, "_KILL", None)   # As on Windows
    for mode in ("fair", "stubborn"):
        engine = UciEngine(stub(mode))
        engine.close(.1)
        assert engine.process.returncode is not None


def test_options_and_answers_may_have_any_letters(stub, tmp_path):
    with UciEngine(stub("fair"), {"Style": "静かな"}) as engine: engine.ready()
    assert commands(tmp_path, "setoption")[-1][-1] == "静かな"


def test_a_command_is_split_as_its_system_does():
    assert _words("'my engine' --threads 1", windows=False) == ["my engine", "--threads", "1"]
    path = r'"C:\my engines\x.exe" --threads 1'
    assert _words(path, windows=True) == path, "Windows splits it, and a backslash stays"


def test_a_forgotten_program_ends_with_python(stub):
    source = (f"from alphazero_nb.arena.external import UciEngine\nengine = UciEngine({stub('stubborn')!r})\n"
              f"print(engine.process.pid)")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert not psutil.pid_exists(int(done.stdout))


def test_errors_of_a_program_stay_its_own(stub, capfd):
    "It writes a megabyte to its error output: nothing blocks, and nothing of it appears."
    game = get_game(QUEENS)
    player = get_player(f"uci:{stub('chatty')}?movetime=5", game)
    for _ in range(3): player.act(game.new_match())
    player.close()
    assert capfd.readouterr().err == ""


def test_the_clock_of_a_program_runs(stub, tmp_path):
    game = get_game(QUEENS)
    player = get_player(f"uci:{stub('slow')}?clock=1+0.1", game)
    state = game.new_match()
    with pytest.raises(EngineFailed, match=r"lost on time: it used \d+\.\d+ s of \d\.\d+"):
        for _ in range(8):
            state = game.play(state, player.act(state))
            if game.over(state): state = game.new_match()
            else: state = game.play(state, game.legal_actions(state)[0])
    clocks = [int(words[2]) for words in commands(tmp_path, "go")]
    assert clocks[0] == 1000 and all(before - after >= 199 for before, after in zip(clocks, clocks[1:])), "0.3 s each, and 0.1 s back"
    assert all(words[1::2] == ["wtime", "btime", "winc", "binc"] and words[6] == "100" for words in commands(tmp_path, "go"))


def test_a_program_knows_the_games_of_all_tables(stub, tmp_path, monkeypatch):
    "Also where they are more than it keeps for a few tables: each game begins once, and its clock runs down."
    monkeypatch.setattr(ProgramPlayer, "room", 0)
    game = get_game(QUEENS)
    player, states = get_player(f"uci:{stub('slow')}?clock=60", game), [game.new_match()] * 3
    states = [game.play(state, action) for state in states[:1] for action in game.legal_actions(state)[:3]]
    states = [game.play(state, game.legal_actions(state)[0]) for state in states]
    for _ in range(3):
        states = [game.play(state, int(action)) for state, action in zip(states, player.acts(states))]
        states = [game.play(state, game.legal_actions(state)[-1]) for state in states if not game.over(state)]
        states = [state for state in states if not game.over(state)]
    player.close()
    asked = commands(tmp_path, "go")
    assert len(commands(tmp_path, "ucinewgame")) == 3 < len(asked)
    assert [words[2] for words in asked[:3]] == ["60000"] * 3 and all(int(words[2]) < 60000 for words in asked[3:])
    assert all("moves" in words for words in commands(tmp_path, "position")[3:])


@pytest.mark.parametrize("text, words", [
    ("", "needs a command"), ("x?movetime=0", "movetime is '0'"), ("x?movetime=soon", "movetime is 'soon'"),
    ("x?clock=10+", "clock is '10\\+'"), ("x?clock=0", "clock is '0'"), ("x?Hash", "write name=value"), ("x?depth=-3", "depth is '-3'"),
])
def test_a_name_that_makes_no_sense(text, words):
    with pytest.raises(ValueError, match=words): read_spec(text)


def test_an_option_that_the_program_does_not_have(stub):
    with pytest.raises(ValueError, match="has no option 'Skil Level'; it has: Skill Level, Style. Did you mean 'Skill Level'?"):
        UciEngine(stub("fair"), {"Skil Level": 1})
    with pytest.raises(ValueError, match="plays chess"): get_player(f"uci:{stub('fair')}", get_game("connect4"))


def test_the_referee(stub, monkeypatch):
    "A fair program wins or draws against one that dies, hangs until its time is out, or cheats; each game is kept."
    game, passed = get_game(QUEENS), [0]
    for module in (external, uci_clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep))
    for mode, words in (("fair", "^$"), ("die", "died"), ("illegal", "not a legal move"), ("slow", "lost on time")):
        with UciEngine(stub("fair")) as fair, UciEngine(stub("fair" if mode == "slow" else mode)) as other:
            send = other.send

            def send_and_wait(text):   # The slow one needs 400 seconds for each move
                send(text)
                if mode == "slow" and text.startswith("go"): passed[0] += 400
            other.send = send_and_wait
            played = play_clocked(game, (fair, other), 600, .01)
        assert re.search(words, played.ending), played
        if mode != "fair" and played.ending: assert played.result == (1, -1)
        if mode == "fair": assert played.result == tuple(game.returns(state_of(game, played.actions)))


def state_of(game, actions):
    state = game.new_match()
    for action in actions: state = game.play(state, action)
    return state


def test_the_command_line_ends_with_a_sentence(stub, capsys):
    assert main(["arena", f"uci:{stub('die')}?movetime=10", "random", "--game", "chess", "--games", "2", "--json"]) == 2
    assert re.fullmatch(r"alphazero-nb: the program .* died after .* out of luck\.\n", capsys.readouterr().err)
