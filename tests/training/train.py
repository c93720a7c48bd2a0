#!/usr/bin/env python3
"""One rank of a small training job: PyTorch DDP over Gloo, a transformer of 0.9 million parameters, random tokens.

    RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.77.0.11 MASTER_PORT=29500 train.py FOLDER [--upload ADDRESS PORT]

Appends a line "END SECONDS" to FOLDER/steps-RANK for each step: when it ended (Unix time) and how long it took. While
FOLDER/slow-RANK exists each step computes half a second longer; while FOLDER/upload-RANK exists a thread sends a
checkpoint to ADDRESS PORT. Runs until it is stopped. Needs Debian's python3-torch.
"""

import argparse
import os
import socket
import threading
import time

import torch
import torch.distributed
from torch import nn

WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH, BATCH = 128, 4, 4, 512, 32, 4
COMPUTING_S = 0.1  # what an accelerator would take; the model itself is small enough for a few busy cores
SLOW_S = 0.5
CHUNK_BYTES = 1 << 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def upload(address, port, wanted):
    """Sends as fast as the network takes it while the file `wanted` exists; anew when the connection breaks."""
    chunk = bytes(CHUNK_BYTES)
    while True:
        time.sleep(0.1)
        if not os.path.exists(wanted):
            continue
        try:
            with socket.create_connection((address, port)) as connection:
                while os.path.exists(wanted):
                    connection.sendall(chunk)
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--upload", nargs=2, metavar=("ADDRESS", "PORT"))
    given = parser.parse_args()
    rank = os.environ["RANK"]
    slow = os.path.join(given.folder, f"slow-{rank}")
    if given.upload:
        address, port = given.upload
        wanted = os.path.join(given.folder, f"upload-{rank}")
        threading.Thread(target=upload, args=(address, int(port), wanted), daemon=True).start()

    torch.set_num_threads(1)
    torch.manual_seed(int(rank))
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with open(os.path.join(given.folder, f"steps-{rank}"), "w", buffering=1) as steps:
        while True:
            began = time.time()
            tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
            time.sleep(COMPUTING_S + (SLOW_S if os.path.exists(slow) else 0))
            loss.backward()  # in which DDP sums the gradients over the ranks
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            ended = time.time()
            steps.write(f"{ended:.3f} {ended - began:.4f}\n")


if __name__ == "__main__":
    main()
