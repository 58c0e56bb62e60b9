"""A small UCI program for tests: it plays mates where it sees them and random moves otherwise, or misbehaves.

    python uci_stub.py MODE LOG      MODE is "fair" or the way to misbehave; every command is appended to LOG
"""
import os
import random
import subprocess
import sys
import time

import chess

sys.stdin.reconfigure(encoding="utf-8")
mode, log = sys.argv[1], open(sys.argv[2], "a", buffering=1, encoding="utf-8")
board, asked, rng = chess.Board(), 0, random.Random(1)


def say(line): print(line, flush=True)


def spell(move):
    "The move in UCI; as the king takes its rook, and in capitals, if the stub is careless."
    if mode != "careless": return move.uci()
    if board.is_castling(move): return board.uci(move, chess960=True).upper()
    return move.uci().upper()


def answer():
    moves = list(board.legal_moves)
    special = [move for move in moves if mode == "careless" and (move.promotion or board.is_castling(move))]
    if special: return rng.choice(special)
    for move in moves:
        board.push(move)
        mate = board.is_checkmate()
        board.pop()
        if mate: return move
    return rng.choice(moves)


if mode == "family": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
if mode == "escape": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
if mode == "early": sys.exit("no licence")
for line in sys.stdin:
    log.write(line)
    words = line.split()
    if words[0] == "uci" and mode != "mute":
        say("id name stub\noption name Skill Level type spin default 3 min 0 max 20\n"
            "option name Style type string default calm\nuciok")
    elif words[0] == "isready": say("readyok")
    elif words[0] == "position":
        moves = words[words.index("moves") + 1:] if "moves" in words else []
        board = chess.Board(" ".join(words[2:8])) if words[1] == "fen" else chess.Board()
        for move in moves: board.push_uci(move)
    elif words[0] == "go":
        asked += 1
        if mode == "chatty": sys.stderr.write("nonsense " * 20000 + "\n")
        if mode == "slow": time.sleep(.3)
        if asked == 2 and mode == "hang": time.sleep(1000)
        if asked == 2 and mode == "die":
            sys.stderr.write("out of luck.\n")
            os._exit(3)
        if asked == 2 and mode == "illegal": say("bestmove a1a8")
        elif asked == 2 and mode == "empty": say("bestmove")
        else: say(f"info depth 1 score cp 0\nbestmove {spell(answer())} ponder a1a1")
    elif words[0] == "quit" and mode != "stubborn": break
if mode in ("stubborn", "family"): time.sleep(1000)
