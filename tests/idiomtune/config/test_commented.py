"""`--cfg job`: the options of a run, each with what `conf/` says of it."""

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from idiomtune.config.commented import add_comments
from idiomtune.programs.run import run_task


def shown(config: DictConfig) -> tuple[str, object]:
    text = add_comments(config, "config", HydraConfig.get().runtime.choices)
    return text, OmegaConf.to_container(config, resolve=False)


def test_it_is_the_configuration_and_its_comments() -> None:
    for words in (["+experiment=joint"], ["+experiment=admire_aima"], ["model=bge_base", "tracking=[wandb]"]):
        text, config = run_task("config", shown, words)
        assert yaml.safe_load(text) == config
        lines = {line.strip() for line in text.splitlines()}
        assert any(line.startswith("seed: 42  # of everything") for line in lines)
        options = [line for line in lines if ":" in line and not line.startswith(("#", "-"))]
        assert sum("  # " in line for line in options) > 0.6 * len(options)


def test_an_experiment_says_what_it_changes_and_why() -> None:
    text, _ = run_task("config", shown, ["+experiment=idiolink_glossary"])
    assert text.startswith("# idiomtune train +experiment=idiolink_glossary\n")
    assert "\n  glossary_dropout: 0.25  # so that it also works without" in text  # its own comment
    assert "hard_weight: 5.0  # of the idiom in its other" in text  # of the experiment that it builds on
    assert "\n  max_epochs: 4\n" in text  # a file without a comment takes none of another's
