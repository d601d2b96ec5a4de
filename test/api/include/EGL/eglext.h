/* Stand-in for the EGL extension header: the types that cudaEGL.h names. */
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
