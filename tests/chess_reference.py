"""A slow generator of chess moves in plain Python, for boards of any size: squares one by one, and every move is tried
out. It shares no code with the package, and it has no bitboards, no pins and no point of view but White's."""
from typing import NamedTuple

STRAIGHT, DIAGONAL = ((0, 1), (0, -1), (1, 0), (-1, 0)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
RAYS = dict(b=DIAGONAL, r=STRAIGHT, q=STRAIGHT + DIAGONAL)
HOPS = dict(k=STRAIGHT + DIAGONAL, n=((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)))


class Position(NamedTuple):
    board: dict      # {(file, rank): letter}, counted from 0
    white: bool      # White is to move
    castling: str
    passed: tuple    # The square that a pawn has just passed, or None
    size: int


def read(fen):
    pieces, side, castling, passed = fen.split()[:4]
    ranks, board = pieces.split("/"), {}
    for down, rank in enumerate(ranks):
        file = 0
        for letter in rank:
            if letter.isdigit(): file += int(letter)
            else:
                board[file, len(ranks) - 1 - down] = letter
                file += 1
    return Position(board, side == "w", castling, None if passed == "-" else (ord(passed[0]) - 97, int(passed[1]) - 1),
                    len(ranks))


def inside(position, square): return 0 <= square[0] < position.size and 0 <= square[1] < position.size


def belongs(letter, white): return letter.isupper() == white


def along(position, square, step):
    "Squares from here on, up to and with the first piece."
    while True:
        square = square[0] + step[0], square[1] + step[1]
        if not inside(position, square): return
        yield square
        if square in position.board: return


def attacked(position, square, white):
    "Is this square attacked by this side?"
    for start, letter in position.board.items():
        if not belongs(letter, white): continue
        kind, dx, dy = letter.lower(), square[0] - start[0], square[1] - start[1]
        if kind == "p" and abs(dx) == 1 and dy == (1 if white else -1): return True
        if kind in HOPS and (dx, dy) in HOPS[kind]: return True
        if kind in RAYS and any(square in along(position, start, step) for step in RAYS[kind]): return True
    return False


def king(position, white): return next(square for square, letter in position.board.items() if letter == "kK"[white])


def pawn_moves(position, start):
    forward, last = (1, position.size - 1) if position.white else (-1, 0)
    ahead = start[0], start[1] + forward
    targets = []
    if ahead not in position.board:
        targets.append(ahead)
        two = start[0], start[1] + 2 * forward
        at_home = position.size == 8 and start[1] == (1 if position.white else 6)
        if at_home and two not in position.board: targets.append(two)
    for side in (-1, 1):
        square = start[0] + side, start[1] + forward
        there = position.board.get(square)
        if there and not belongs(there, position.white) or square == position.passed: targets.append(square)
    for target in targets:
        if not inside(position, target): continue
        for promotion in "qrbn" if target[1] == last else ("",): yield start, target, promotion


def castling_moves(position):
    rank, rights = (0, "KQ") if position.white else (7, "kq")
    def free(files): return not any((file, rank) in position.board for file in files)
    def safe(files): return not any(attacked(position, (file, rank), not position.white) for file in files)
    if rights[0] in position.castling and free((5, 6)) and safe((4, 5, 6)): yield (4, rank), (6, rank), ""
    if rights[1] in position.castling and free((1, 2, 3)) and safe((4, 3, 2)): yield (4, rank), (2, rank), ""


def piece_moves(position, start, letter):
    kind = letter.lower()
    if kind in RAYS: targets = [square for step in RAYS[kind] for square in along(position, start, step)]
    else: targets = [(start[0] + dx, start[1] + dy) for dx, dy in HOPS[kind]]
    for target in targets:
        there = position.board.get(target)
        if inside(position, target) and not (there and belongs(there, position.white)): yield start, target, ""


def after(position, move):
    start, to, promotion = move
    board, letter = dict(position.board), position.board[start]
    del board[start]
    pawn = letter.lower() == "p"
    if pawn and to == position.passed: del board[to[0], start[1]]
    board[to] = (promotion.upper() if position.white else promotion) or letter
    if letter.lower() == "k" and abs(to[0] - start[0]) == 2:
        rook = (7, 5) if to[0] == 6 else (0, 3)
        board[rook[1], to[1]] = board.pop((rook[0], to[1]))
    lost = {(4, 0): "KQ", (7, 0): "K", (0, 0): "Q", (4, 7): "kq", (7, 7): "k", (0, 7): "q"} if position.size == 8 else {}
    castling = "".join(right for right in position.castling if right not in lost.get(start, "") + lost.get(to, ""))
    passed = (start[0], (start[1] + to[1]) // 2) if pawn and abs(to[1] - start[1]) == 2 else None
    return Position(board, not position.white, castling, passed, position.size)


def legal(position):
    "Legal moves: (start, target, promotion)."
    found = list(castling_moves(position)) if position.size == 8 else []
    for start, letter in position.board.items():
        if not belongs(letter, position.white): continue
        found += pawn_moves(position, start) if letter in "Pp" else piece_moves(position, start, letter)
    for move in found:
        then = after(position, move)
        if not attacked(then, king(then, position.white), then.white): yield move


def uci(move): return "".join(f"{'abcdefgh'[file]}{rank + 1}" for file, rank in move[:2]) + move[2]


def perft(position, depth):
    if depth == 0: return 1
    return sum(perft(after(position, move), depth - 1) for move in legal(position))
