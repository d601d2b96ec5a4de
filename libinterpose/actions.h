#ifndef CUDACKPT_ACTIONS_H
#define CUDACKPT_ACTIONS_H
/* What the control thread can be asked for: the states and the way from one to the next (actions.c). */

#include "control.h"

extern const struct control_actions actions;

#endif
