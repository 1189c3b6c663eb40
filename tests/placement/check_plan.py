#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the plans of a `minim` program with cases such as those of seeds.json.

    check_plan.py build/release/apps/minim/minim [cases.json] [--only TEXT] [--speeds] [--folder FOLDER]

Makes the sparse checkpoints it needs (up to 50 MB on disk each) in FOLDER, and prints what is wrong with each plan. minim.h (minim_plan_make)
describes the plan's JSON.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple, Optional

import figures
from figures import headers

EXACT = 0.001  # weights and KV
HERE = pathlib.Path(__file__).resolve().parent


class Answer(NamedTuple):
    plan: Optional[dict]  # None: no JSON object was printed
    code: int
    error: str
    seconds: float
    rss_bytes: int


def model_path(spec, folder):
    """Returns the path of a checkpoint, which is made on first use."""
    name = hashlib.sha1((json.dumps(spec, sort_keys=True) + pathlib.Path(headers.__file__).read_text()).encode()).hexdigest()[:12]
    kind, place, parts = spec.get("mix"), pathlib.Path(folder) / name, spec.get("parts", 1)
    if not place.exists():
        model, _, tensors = figures.tensors_of(spec)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=place.parent))
        if kind in headers.SHARDS:
            headers.write_hf(part, model, tensors, kind, headers.SHARDS[kind])
        else:
            headers.write_gguf(part / "model.gguf", model, tensors, "MiniMax-M2.5, headers only", parts)
        try:
            part.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return place if kind in headers.SHARDS else place / ("model.gguf" if parts == 1 else f"model-00001-of-{parts:05d}.gguf")


def run(command, timeout=120):
    """Runs a program that prints JSON, and measures its time and peak memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - start > timeout:
                process.kill()
                os.waitpid(process.pid, 0)
                return Answer(None, -1, "timeout", timeout, 0)
            time.sleep(0.005)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        try:
            plan = json.loads(out.read())
        except ValueError:
            plan = None
        error = err.read().decode("utf-8", "replace").strip()
        return Answer(plan if isinstance(plan, dict) else None, process.returncode, error, seconds, usage.ru_maxrss * 1024)


def plan(minim, model, case, folder, **changes):
    """Returns the answer for a case, with some of the case's keys changed."""
    c = {**case, **changes}
    command = [minim, "plan", "-m", model_path(model, folder), "-c", c["context"], "-ctk", c["kv"][0], "-ctv", c["kv"][1]]
    for device in c["devices"]:
        command += ["--device", device]
    for option, key in (("--host", "host"), ("-ot", "overrides"), ("-ts", "split"), ("--parallel", "parallel")):
        if c.get(key):
            command += [option, c[key]]
    return run([*command, "--json"])


def no_plan(answer):
    return f"no JSON, exit code {answer.code}: " + " ".join(answer.error.split())[-120:]


def near(value, wanted, tolerance=EXACT):
    return isinstance(value, (int, float)) and abs(value - wanted) <= tolerance * wanted + 1


def missing_keys(plan):
    """Returns the keys that are absent or of a wrong type."""
    faults = []

    def need(place, keys, kind, where):
        for key in keys:
            value = place.get(key) if isinstance(place, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
                faults.append(f"{where}{key} is {value!r}")

    need(plan, ["fits"], bool, "")
    need(plan, ["devices", "choices"], list, "")
    need(plan, ["host", "bytes_per_token", "decode_seconds"], dict, "")
    need(plan, ["decode_tokens_per_second", "prompt_tokens_per_second"], (int, float), "")
    sizes = ["dense_bytes", "expert_bytes", "kv_bytes", "work_bytes", "free_bytes"]
    for i, device in enumerate(plan.get("devices") or []):
        need(device, ["name"], str, f"devices[{i}].")
        need(device, [*sizes, "n_layers", "n_experts"], int, f"devices[{i}].")
    need(plan.get("host"), sizes, int, "host.")
    need(plan.get("bytes_per_token"), ["dense", "experts", "kv_at_context"], int, "bytes_per_token.")
    return faults


def capacity_faults(plan, case):
    """Checks that no device and no host is given more bytes than it has, and that the plan reports the bytes left."""
    faults = []
    places = [(d, figures.facts(text)) for d, text in zip(plan["devices"], case["devices"])] + [(plan["host"], figures.facts(case["host"]))]
    for place, (name, memory, _) in places:
        used = sum(place[k] for k in ("dense_bytes", "expert_bytes", "kv_bytes", "work_bytes"))
        if used > memory or min(place[k] for k in ("dense_bytes", "expert_bytes", "kv_bytes", "work_bytes")) < 0:
            faults.append(f"{name or 'host'} holds {used:,} of {memory:,} bytes")
        elif not memory - used - 0.03 * memory - 2**30 <= place["free_bytes"] <= memory - used + 0.001 * memory:
            faults.append(f"{name or 'host'} has {memory - used:,} bytes left, free_bytes is {place['free_bytes']:,}")
    return faults


def kv_is(value, case, share=1.0):
    """Returns whether `value` is the bytes of the KV cache, or of a share of its layers; a context may be rounded up to whole pages."""
    model, context = figures.model_of(case["model"]), case["context"]
    exact, rounded = (figures.kv_bytes(n, *case["kv"], model) * share for n in (context, -(-context // figures.KV_ROUNDING) * figures.KV_ROUNDING))
    return exact * (1 - EXACT) - 1 <= value <= rounded * (1 + EXACT) + 1


def dense_choices(form, first, count):
    """Returns the possible sums of bytes of the dense tensors of `count` layers: with or without embedding and head."""
    per_layer = form["layer_dense"]
    layers = per_layer * count if isinstance(per_layer, int) else sum(per_layer[first:first + count])
    return [layers + more for more in (0, form["embedding"], form["head"], form["embedding"] + form["head"])]


def weight_faults(plan, case, form_name):
    """Compares the plan's weights with one form of the checkpoint's weights: as stored, or as resident."""
    form, faults = case["expected"]["weights"][form_name], []
    devices, host = plan["devices"], plan["host"]
    dense = sum(d["dense_bytes"] for d in devices) + host["dense_bytes"]
    if not near(dense, form["dense"]):
        faults.append(f"dense weights are {dense:,} bytes, not {form['dense']:,}")
    first = 0
    for d in devices:
        choices = dense_choices(form, first, d["n_layers"])
        first += d["n_layers"]
        if not any(near(d["dense_bytes"], c) for c in choices):
            faults.append(f"{d['name']}: {d['n_layers']} layers with {d['dense_bytes']:,} bytes of dense weights, not one of {choices}")
        sizes, n = form["expert_sizes"], d["n_experts"]
        if not n * sizes[0] * (1 - EXACT) - 1 <= d["expert_bytes"] <= n * sizes[-1] * (1 + EXACT) + 1:
            faults.append(f"{d['name']}: {n} experts of {sizes} bytes are not {d['expert_bytes']:,}")
    # Host memory may keep a copy of experts that are on a device, or not.
    there, here, total = sum(d["expert_bytes"] for d in devices), host["expert_bytes"], form["experts"]
    if there + here < total * (1 - EXACT) or max(there, here) > total * (1 + EXACT):
        faults.append(f"experts: {there:,} bytes on devices, {here:,} in host memory, {total:,} in all")
    placed = case["expected"]["placed"]
    if "host_experts" in placed and not near(here, placed["host_experts"]):
        faults.append(f"host memory has {here:,} bytes of experts, not {placed['host_experts']:,}")
    if here < placed.get("host_experts_least", 0):
        faults.append(f"host memory has {here:,} bytes of experts, not at least {placed['host_experts_least']:,}")
    if "device_experts" in placed and not near(there, placed["device_experts"]):
        faults.append(f"devices have {there:,} bytes of experts, not {placed['device_experts']:,}")
    want, read = case["expected"]["bytes_per_token"][form_name], plan["bytes_per_token"]
    faults += [f"bytes_per_token.{key} is {read[key]:,}, not {want[key]:,}" for key in ("dense", "experts") if not near(read[key], want[key])]
    return faults + ([] if kv_is(read["kv_at_context"], case) else [f"bytes_per_token.kv_at_context is {read['kv_at_context']:,}, not {want['kv_at_context']:,}"])


def byte_faults(answer, case):
    """Returns the faults in the bytes of an answer; empty if there are none."""
    expected, plan = case["expected"], answer.plan
    if plan is None:
        return [no_plan(answer)]
    if plan.get("fits") is not expected["fits"]:
        return [f"fits is {plan.get('fits')}, not {expected['fits']}"]
    if not expected["fits"]:
        return refusal_faults(plan)
    faults = missing_keys(plan)
    if faults:
        return faults
    names = [figures.facts(d)[0] for d in case["devices"]]
    if [d["name"] for d in plan["devices"]] != names:
        return [f"devices are {[d['name'] for d in plan['devices']]}, not {names}"]
    layers = [d["n_layers"] for d in plan["devices"]]
    if layers != expected["placed"].get("n_layers", layers):
        faults.append(f"layers are {layers}, not {expected['placed']['n_layers']}")
    n_layer = case["model"].get("layers", 62)
    if sum(layers) > n_layer or expected["layers_on_devices"] and sum(layers) != n_layer:
        faults.append(f"{sum(layers)} of {n_layer} layers are on devices")
    total = sum(d["kv_bytes"] for d in plan["devices"]) + plan["host"]["kv_bytes"]
    if not kv_is(total, case):
        faults.append(f"the KV cache is {total:,} bytes, not {expected['kv_bytes']:,}")
    faults += [f"{d['name']}: {d['n_layers']} layers with {d['kv_bytes']:,} bytes of KV cache" for d in plan["devices"] if not kv_is(d["kv_bytes"], case, d["n_layers"] / n_layer)]
    return faults + capacity_faults(plan, case) + min((weight_faults(plan, case, form) for form in expected["weights"]), key=len)


def refusal_faults(plan):
    """Checks that a plan that does not fit says what would fit, with a figure."""
    said = [c for c in plan.get("choices") or [] if isinstance(c, str)]
    if any(re.search(r"\d", c) and re.search(r"context|token|[GM]i?B|memory|layers|format|Q\d|bits", c) for c in said):
        return []
    return [f"it does not fit, but what would is not said: {said}"]


def limit(plan, case):
    """Returns the tokens per second that no machine with this placement can exceed: each memory is read at its full bandwidth, all at once.

    Routing is taken as even: the share of the experts on devices is the share of those read there.
    """
    read = plan["bytes_per_token"]
    there = sum(d["expert_bytes"] for d in plan["devices"])
    total = read["experts"] * case["model"].get("experts", 256) / 8
    share = min(1.0, there / total)
    layers = sum(d["n_layers"] for d in plan["devices"]) / case["model"].get("layers", 62)
    on_devices = read["experts"] * share + (read["dense"] + read["kv_at_context"]) * layers
    in_host = read["experts"] * (1 - share) + (read["dense"] + read["kv_at_context"]) * (1 - layers)
    seconds = in_host / figures.facts(case["host"])[2]
    if on_devices:
        seconds = max(seconds, on_devices / sum(figures.facts(d)[2] for d in case["devices"]))
    return 1 / seconds


def speed_faults(answer, case, bounds):
    """Returns the faults in the predicted speeds; bounds: one of the case's speeds."""
    plan = answer.plan
    if plan is None:
        return [no_plan(answer)]
    faults = missing_keys(plan)
    if faults or not plan["fits"]:
        return faults or ["it does not fit"]
    decode, prompt, parts = plan["decode_tokens_per_second"], plan["prompt_tokens_per_second"], plan["decode_seconds"]
    low, high = bounds["decode"]
    high = min(high, 1.02 * limit(plan, case))
    if not low <= decode <= high:
        faults.append(f"{decode:.1f} tokens/s at {bounds['context']}, not {low:.1f} to {high:.1f}")
    low, high = bounds.get("prompt", [decode, 1e6])
    if not low <= prompt <= high:
        faults.append(f"{prompt:.0f} prompt tokens/s, not {low:.0f} to {high:.0f}")
    seconds = [v for v in parts.values() if isinstance(v, (int, float))]
    if not seconds or min(seconds) < 0 or decode > 0 and not max(seconds) <= 1.05 / decode and sum(seconds) >= 0.95 / decode:
        faults.append(f"decode_seconds {parts} do not make {1 / decode:.4f} s")
    return faults


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("minim")
    p.add_argument("cases", nargs="?", default=HERE / "seeds.json")
    p.add_argument("--only", default="", help="cases whose names contain this")
    p.add_argument("--speeds", action="store_true", help="check predicted speeds too")
    p.add_argument("--folder", default=pathlib.Path(tempfile.gettempdir()) / "minim-headers")
    a = p.parse_args()
    wrong = 0
    for case in json.loads(pathlib.Path(a.cases).read_text())["cases"]:
        if a.only not in case["name"]:
            continue
        faults = byte_faults(plan(a.minim, case["model"], case, a.folder), case)
        for s in case.get("speeds", []) if a.speeds else []:
            faults += speed_faults(plan(a.minim, case["model"], case, a.folder, context=s["context"], kv=s["kv"], overrides=s["overrides"]), case, s)
        wrong += bool(faults)
        print("wrong:" if faults else "right:", case["name"])
        for fault in faults:
            print("      ", fault)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
