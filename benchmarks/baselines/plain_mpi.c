/* Measure one operation of MPI in the plainest way: no framework, no Python.
 *
 *     mpicc -O2 plain_mpi.c -o plain_mpi && mpirun -n 2 ./plain_mpi all-reduce 4 1000 9
 *
 * Arguments: all-reduce or latency, size in bytes (a multiple of 4), calls per repetition, and
 * repetitions. The first repetition warms up. The time of an all-reduce is its mean time in a
 * repetition on the slowest rank; the latency is half of the mean time of a round trip between
 * ranks 0 and 1. Rank 0 prints {"rate": R}: all-reduces (or one-way messages) per second, by the
 * median of the repetitions. Buffers are aligned as PyTorch aligns tensors, because alignment
 * and size of the pages change the times of large buffers. Written for this benchmark; MPI 3.1,
 * sections 3.2 and 5.9. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64) /* bytes; gAlignment in PyTorch's c10/core/alignment.h */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Return a buffer of `count` floats, all equal to `value`. */
static float *buffer(int count, float value) {
    size_t bytes = ((size_t)count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *made = aligned_alloc(ALIGNMENT, bytes);
    if (made == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < count; i++) made[i] = value;
    return made;
}

/* Return the mean seconds of an all-reduce of `count` floats on the slowest rank. */
static double all_reduce(const float *in, float *out, int count, int calls) {
    double own, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    own = (MPI_Wtime() - start) / calls;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Return half of the mean seconds of a round trip of `count` floats between ranks 0 and 1. */
static double latency(const float *in, float *out, int count, int calls, int rank) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls && rank < 2; i++) {
        if (rank == 0) MPI_Send(in, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(out, count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(in, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - start) / calls / 2;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 5) {
        if (rank == 0) fprintf(stderr, "usage: plain_mpi all-reduce|latency BYTES CALLS REPETITIONS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int reduces = strcmp(argv[1], "all-reduce") == 0;
    int count = atoi(argv[2]) / (int)sizeof(float), calls = atoi(argv[3]), repetitions = atoi(argv[4]);
    float *in = buffer(count, (float)(rank + 1)), *out = buffer(count, 0);
    double *seconds = malloc((size_t)repetitions * sizeof(double));
    for (int i = -1; i < repetitions; i++) {
        double mean = reduces ? all_reduce(in, out, count, calls) : latency(in, out, count, calls, rank);
        if (i >= 0) seconds[i] = mean;
    }
    qsort(seconds, repetitions, sizeof(double), by_value);
    if (rank == 0) printf("{\"rate\": %.9g}\n", 1 / seconds[repetitions / 2]);
    MPI_Finalize();
    return 0;
}
