"""The rules of Tromp and Taylor in plain Python: a dictionary of points, areas by flood fill, and a set of all boards."""


class PlainGo:
    "A game of Go; actions are points in reading order, and the pass after them."
    def __init__(self, size, komi=7, suicide=False, longest=None):
        self.size, self.komi, self.suicide = size, komi, suicide
        self.longest = longest or 2 * size * size
        self.board, self.seat, self.moves, self.passes = "." * size * size, 0, 0, 0
        self.boards = {self.board}

    def near(self, point):
        row, column = divmod(point, self.size)
        places = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return [r * self.size + c for r, c in places if 0 <= r < self.size and 0 <= c < self.size]

    def area(self, board, point):
        "The connected points of one colour, and all that lies beside them."
        area, border, waiting = {point}, set(), [point]
        while waiting:
            for near in self.near(waiting.pop()):
                if board[near] != board[point]: border.add(near)
                elif near not in area:
                    area.add(near)
                    waiting.append(near)
        return area, border

    def without_dead(self, board, color):
        "The board after all groups of this colour without a liberty are gone."
        dead = set()
        for point in range(self.size ** 2):
            if board[point] != color: continue
            area, border = self.area(board, point)
            if not any(board[near] == "." for near in border): dead |= area
        return "".join("." if point in dead else sign for point, sign in enumerate(board))

    def after(self, point):
        "The board after a stone, or None if it is forbidden."
        if self.board[point] != ".": return None
        own, other = "xo"[self.seat], "ox"[self.seat]
        board = self.board[:point] + own + self.board[point + 1:]
        board = self.without_dead(board, other)
        left = self.without_dead(board, own)
        if left != board and not self.suicide or left in self.boards: return None
        return left

    def over(self): return self.passes == 2 or self.moves == self.longest

    def legal(self): return [p for p in range(self.size ** 2) if self.after(p) is not None] + [self.size ** 2]

    def play(self, action):
        if action == self.size ** 2: self.passes += 1
        else:
            self.board, self.passes = self.after(action), 0
            self.boards.add(self.board)
        self.moves, self.seat = self.moves + 1, 1 - self.seat

    def lead(self):
        "Points of seat 0 minus points of seat 1, and minus the komi."
        lead, seen = 0, set()
        for point, sign in enumerate(self.board):
            if sign != ".": lead += 1 if sign == "x" else -1
            elif point not in seen:
                area, border = self.area(self.board, point)
                seen |= area
                colors = {self.board[near] for near in border}
                if len(colors) == 1: lead += len(area) if colors == {"x"} else -len(area)
        return lead - self.komi
