/* Stand-in for the OpenGL header: the types that cudaGL.h names, so that the checks need no graphics packages. */
typedef unsigned int GLuint;
typedef unsigned int GLenum;
