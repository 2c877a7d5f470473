"""Whole programs: fine-tune a model, evaluate one."""
