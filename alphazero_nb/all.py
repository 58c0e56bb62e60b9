"""Everything a notebook needs: `from alphazero_nb.all import *`."""
from alphazero_nb.core.device import check_device, device_report, get_device, list_devices
from alphazero_nb.core.events import JsonLines, read_events
from alphazero_nb.core.game import ContractError, Game, board_symmetries, get_game, list_games, register
from alphazero_nb.core.python_game import PythonGame
from alphazero_nb.core.records import GameRecord
from alphazero_nb.network.networks import PRESETS, PolicyValueNet
from alphazero_nb.network.evaluator import BatchedEvaluator, EvaluatorError, NetworkEvaluator, UniformEvaluator
from alphazero_nb.search.search import Agent, SearchSettings
from alphazero_nb.selfplay.layout import Layout
from alphazero_nb.selfplay.slots import EFFORTS, GameFailed, SelfPlaySettings, default_settings, retrace
from alphazero_nb.selfplay.engine import SelfPlayEngine
from alphazero_nb.arena.matches import (RandomPlayer, RolloutPlayer, RulePlayer, run_ladder, get_player,
                                        play_duplicate, play_match)
from alphazero_nb.training.run_folder import run_folder
from alphazero_nb.training.trainer import Trainer, TrainSettings, default_training
from alphazero_nb.ui.progress import TensorBoard, TextProgress, describe
from alphazero_nb.ui.dashboard import Dashboard
from alphazero_nb.ui.board import register_drawing, stone_board
from alphazero_nb.ui.card_table import register_table
from alphazero_nb.ui.play import Match, match_html, open_match, play
from alphazero_nb.ui.plots import (plot_batch_sizes, plot_calibration, plot_evaluator, plot_games, plot_history,
                                   plot_ladder, plot_layouts, plot_losses, plot_policy, plot_strength, prior_and_visits)
from alphazero_nb.ui.report import report
from alphazero_nb.benchmark import bench_cards, bench_kernels, bench_layouts, bench_selfplay

__all__ = [
    "Agent", "BatchedEvaluator", "ContractError", "Dashboard", "EFFORTS", "EvaluatorError", "Game", "GameFailed",
    "GameRecord", "JsonLines", "Layout", "Match", "NetworkEvaluator", "PRESETS", "PolicyValueNet", "PythonGame",
    "RandomPlayer", "RolloutPlayer", "RulePlayer", "SearchSettings", "SelfPlayEngine", "SelfPlaySettings",
    "TensorBoard", "TextProgress", "TrainSettings", "Trainer", "UniformEvaluator", "bench_cards", "bench_kernels",
    "bench_layouts", "bench_selfplay", "board_symmetries", "check_device", "run_ladder", "default_settings",
    "default_training", "describe", "device_report", "get_device", "get_game", "get_player", "list_devices",
    "list_games", "match_html", "play", "play_duplicate", "play_match", "plot_batch_sizes", "plot_calibration",
    "plot_evaluator", "plot_games", "plot_history", "plot_ladder", "plot_layouts", "plot_losses", "plot_policy",
    "plot_strength", "prior_and_visits", "read_events", "register", "register_drawing", "open_match", "register_table",
    "report", "retrace", "run_folder", "stone_board",
]
