"""Everything a notebook needs: `from alphazero_nb.all import *`."""
from alphazero_nb.arena import RandomPlayer, RolloutPlayer, RulePlayer, climb_ladder, get_player, play_duplicate, play_match
from alphazero_nb.benchmark import bench_cards, bench_kernels, bench_layouts, bench_selfplay
from alphazero_nb.board import register_drawing, stone_board
from alphazero_nb.run_folder import run_folder
from alphazero_nb.dashboard import Dashboard
from alphazero_nb.device import check_device, device_report, get_device, list_devices
from alphazero_nb.evaluator import BatchedEvaluator, EvaluatorError, NetworkEvaluator, UniformEvaluator
from alphazero_nb.game import ContractError, Game, board_symmetries, get_game, list_games, register
from alphazero_nb.network import PRESETS, PolicyValueNet
from alphazero_nb.play import Match, match_html, play, replay
from alphazero_nb.plots import (plot_batch_sizes, plot_calibration, plot_evaluator, plot_games, plot_history, plot_ladder, plot_layouts,
                                plot_losses, plot_policy, plot_strength, prior_and_visits)
from alphazero_nb.progress import JsonLines, TensorBoard, TextProgress, describe, read_events
from alphazero_nb.python_game import PythonGame
from alphazero_nb.records import GameRecord
from alphazero_nb.report import report
from alphazero_nb.search import Agent, SearchSettings
from alphazero_nb.selfplay import Layout, SelfPlayEngine
from alphazero_nb.slots import EFFORTS, GameFailed, SelfPlaySettings, default_settings, retrace
from alphazero_nb.table import register_table
from alphazero_nb.train import Trainer, TrainSettings, default_training

__all__ = [
    "Agent", "BatchedEvaluator", "ContractError", "Dashboard", "EFFORTS", "EvaluatorError", "Game", "GameFailed",
    "GameRecord", "JsonLines", "Layout", "Match", "NetworkEvaluator", "PRESETS", "PolicyValueNet", "PythonGame",
    "RandomPlayer", "RolloutPlayer", "RulePlayer", "SearchSettings", "SelfPlayEngine", "SelfPlaySettings",
    "TensorBoard", "TextProgress", "TrainSettings", "Trainer", "UniformEvaluator", "bench_cards", "bench_kernels",
    "bench_layouts", "bench_selfplay", "board_symmetries", "check_device", "climb_ladder", "default_settings",
    "default_training", "describe", "device_report", "get_device", "get_game", "get_player", "list_devices",
    "list_games", "match_html", "play", "play_duplicate", "play_match", "plot_batch_sizes", "plot_calibration",
    "plot_evaluator", "plot_games", "plot_history", "plot_ladder", "plot_layouts", "plot_losses", "plot_policy",
    "plot_strength", "prior_and_visits", "read_events", "register", "register_drawing", "register_table", "replay",
    "report", "retrace", "run_folder", "stone_board",
]
