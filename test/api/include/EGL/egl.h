/* Stand-in for the EGL header: the types that cudaEGL.h names, so that the checks need no graphics packages. */
#include <stdint.h>
typedef int32_t EGLint;
