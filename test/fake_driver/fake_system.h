#ifndef FAKE_SYSTEM_H
#define FAKE_SYSTEM_H
/* What the driver takes from the system, and the faults that a test asks for. */

#include "fake_base.h"

int os_directory(void);    /* finds and makes fake.directory; -1 with errno */
CUresult os_acquire(void); /* everything that cuInit takes */
int driver_version(void);

struct fault {
    char name[64];
    int number, seen;
    CUresult result;
};

struct faults {
    bool active, known;
    struct fault fail[16];
    int fail_count;
    char move[8][64];
    int move_count;
    struct {
        char name[64];
        int ms;
    } slow[8];
    int slow_count;
};

void faults_start(void);
/* What the call of that entry point must return, CUDA_SUCCESS: go on. Sleeps if it is to be slow. */
CUresult faults_call(enum fake_row row, bool *move);

#endif
