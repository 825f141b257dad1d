/* SPDX-License-Identifier: Apache-2.0 */
/* symbol, inside: the sorted batch that every source answers. */
#ifndef FLYBALL_SYMBOL_ORDER_H
#define FLYBALL_SYMBOL_ORDER_H

#include "symbol.h"

int symbol_query_compare(const void *a, const void *b);
/* Clears the answers and sorts. */
void symbol_queries_reset(struct symbol_query *queries, size_t count);
/* Index of the first query at or above address; count when there is none. */
size_t symbol_query_at_or_above(const struct symbol_query *queries, size_t count, uint64_t address);
/* Takes name and module. */
void symbol_answer(struct symbol_query *query, uint64_t start, char *name, char *module);

#endif
