# SPDX-License-Identifier: Apache-2.0
"""A model in the chat format of M3 for tests of chats: the weights of minim-tiny with the added tokens and a template of M3. Its words make
no sense, so tests say by constraints what it writes."""

import json
import pathlib
import shutil

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "data" / "chat" / "minim_tiny_m3.jinja"
ADDED = ["<tool_call>", "</tool_call>", "<mm:think>", "</mm:think>", "]<]minimax[>["]


def make(models, folder):
    """Makes the model in `folder`, from minim-tiny in the folder `models`. Returns the folder."""
    source = pathlib.Path(models) / "minim-tiny"
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.name.startswith("model") or file.name in ("config.json", "generation_config.json"):
            (folder / file.name).symlink_to(file.resolve())
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    config = json.loads((source / "tokenizer_config.json").read_text())
    first = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    for number, text in enumerate(ADDED, first):
        token = {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        tokenizer["added_tokens"].append({"id": number, **token})
        config["added_tokens_decoder"][str(number)] = token
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(TEMPLATE, folder / "chat_template.jinja")
    return folder
