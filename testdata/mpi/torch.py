# Rendezvous as in torch: rank 0 listens at MASTER_ADDR:MASTER_PORT, and the other ranks connect.
import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert int(os.environ["LOCAL_WORLD_SIZE"]) == size
assert int(os.environ["LOCAL_RANK"]) == rank
assert os.environ["NODE_RANK"] == os.environ["GROUP_RANK"] == "0"
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place, backlog=size) as server:
        met = []
        while len(met) < size - 1:
            connection, _ = server.accept()
            with connection:
                met.append(int(connection.recv(16)))
    print("rank 0 met", *sorted(met))
else:
    while True:
        try:
            with socket.create_connection(place) as connection:
                connection.send(str(rank).encode())
                break
        except ConnectionRefusedError:
            time.sleep(0.01)
