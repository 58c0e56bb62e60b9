"A game between two programs, each on its own clock: what the arena does with a clock, seen by a referee."
import time
from dataclasses import dataclass

from alphazero_nb.arena.external import EngineFailed, EngineLine, ask_move, clock_words
from alphazero_nb.games import chess_text


@dataclass(frozen=True)
class ClockedGame:
    "A game between two programs."
    actions: tuple
    result: tuple        # By seat: 1, 0 or −1
    ending: str          # "" if the game ended by the rules, otherwise what happened
    left_s: tuple        # Time left, by seat
    slowest_s: tuple     # Longest move, by seat


def play_clocked(game, engines, clock_s, increment_s=0.0) -> ClockedGame:   # engines: two of UciEngine; the first plays White
    "Play a game with clocks. A program that fails loses."
    state, fen = game.new_match(), chess_text.to_fen(game, game.new_match())
    actions, moves, left, slowest = [], [], [clock_s, clock_s], [0.0, 0.0]

    def end(loser=None, ending=""):
        result = game.returns(state).tolist() if loser is None else [-1 + 2 * (seat != loser) for seat in range(2)]
        return ClockedGame(tuple(actions), tuple(result), ending, tuple(left), tuple(slowest))
    while not game.over(state):
        seat = game.mover(state)
        engine, start = engines[seat], time.monotonic()
        try:
            if len(actions) < 2:
                engine.begin_game()
                start = time.monotonic()
            go, line = clock_words(*left, increment_s), EngineLine(fen, tuple(moves))
            action = ask_move(engine, game, state, line, go, left[seat] + 5)
        except EngineFailed as error: return end(seat, str(error))
        used = time.monotonic() - start
        slowest[seat], left[seat] = max(slowest[seat], used), left[seat] - used
        if left[seat] < 0: return end(seat, f"the program {engine.command!r} lost on time.")
        left[seat] += increment_s
        actions.append(action)
        moves.append(chess_text.move_to_uci(game, state, action))
        state = game.play(state, action)
    return end()
