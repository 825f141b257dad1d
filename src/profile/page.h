/* SPDX-License-Identifier: Apache-2.0 */
/* page: the template of the HTML output, built by ui/ and made into an array by page_embed.py. */
#ifndef FLYBALL_PROFILE_PAGE_H
#define FLYBALL_PROFILE_PAGE_H

#include <stddef.h>

extern const unsigned char profile_page_template[];
extern const size_t profile_page_template_size;

#endif
