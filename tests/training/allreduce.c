// One rank of a small MPI job: sums 4 MB over all ranks, again and again, with a little time between that
// stands for computing. Writes FOLDER/steps-RANK as train.py does. Runs until it is stopped.
//     mpicc -O2 -o allreduce allreduce.c; mpirun ... allreduce FOLDER
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kFloats = 1 << 20 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char path[4096];
  snprintf(path, sizeof path, "%s/steps-%d", argc > 1 ? argv[1] : ".", rank);
  FILE* steps = fopen(path, "w");
  float* gradients = calloc(kFloats, sizeof *gradients);
  if (!steps || !gradients) MPI_Abort(MPI_COMM_WORLD, 1);
  setvbuf(steps, NULL, _IOLBF, 0);
  const struct timespec computing = {0, 100 * 1000 * 1000};
  for (;;) {
    const double began = now();
    nanosleep(&computing, NULL);
    MPI_Allreduce(MPI_IN_PLACE, gradients, kFloats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    fprintf(steps, "%.3f %.4f\n", now(), now() - began);
  }
}
