#ifndef CUDACKPT_LIST_H
#define CUDACKPT_LIST_H
/* Intrusive circular doubly linked list. The head is a node that belongs to no object. */

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

#define LIST_INIT(head)                                                                                      \
    {                                                                                                        \
        &(head), &(head)                                                                                     \
    }

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

/* Adds node before position; with the head as position that is at the end. */
static inline void list_insert(struct list *position, struct list *node)
{
    node->prev = position->prev;
    node->next = position;
    position->prev->next = node;
    position->prev = node;
}

/* Takes node out; it is an empty list afterwards, so that a second removal does no harm. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* The body may remove the node that it stands on. */
#define list_each(node, head)                                                                                \
    for (struct list *node = (head)->next, *next_##node = node->next; node != (head);                        \
         node = next_##node, next_##node = node->next)

#endif
