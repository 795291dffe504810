/* Time of one MPI_Allreduce of fp32 sums, as rank 0 sees it, each call by itself, after a warm-up.
 *   mpi_allreduce BYTES ROUNDS
 * prints "BYTES B mpi median_us 1.60 p99_us 2.10". Built by allreduce_peers.sh. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int bytes = argc > 1 ? atoi(argv[1]) : 2304;
  const int rounds = argc > 2 ? atoi(argv[2]) : 20000;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int count = bytes / (int)sizeof(float);
  float* in = calloc((size_t)count + 1, sizeof(float));
  float* out = calloc((size_t)count + 1, sizeof(float));
  double* times = calloc((size_t)rounds + 1, sizeof(double));
  if (in == NULL || out == NULL || times == NULL || rounds < 1) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < rounds / 10 + 100; ++i) {
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  for (int i = 0; i < rounds; ++i) {
    const double start = MPI_Wtime();
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    times[i] = MPI_Wtime() - start;
  }
  qsort(times, (size_t)rounds, sizeof(double), Compare);
  if (rank == 0) {
    printf("%d B mpi median_us %.3f p99_us %.3f\n", bytes, times[rounds / 2] * 1e6,
           times[(size_t)rounds * 99 / 100] * 1e6);
  }
  free(in);
  free(out);
  free(times);
  MPI_Finalize();
  return 0;
}
