// SPDX-License-Identifier: Apache-2.0
/* reasons: abi/reasons.def as tables of text. */
#include "profile.h"

static const struct profile_reason reasons[] = {
#define DROP(ID, name, text, advice)	{#name, "drop", text, advice},
#define CUT(ID, name, text, advice)	{#name, "cut", text, advice},
#define UNNAMED(ID, name, text, advice) {#name, "unnamed", text, advice},
#include "abi/reasons.def"
};

static const char *const drop_names[FLY_DROP_COUNT] = {
#define DROP(ID, name, text, advice) [FLY_DROP_##ID] = #name,
#include "abi/reasons.def"
};

static const char *const cut_names[FLY_CUT_COUNT] = {
#define CUT(ID, name, text, advice) [FLY_CUT_##ID] = #name,
#include "abi/reasons.def"
};

static const char *const unnamed_names[FLY_UNNAMED_COUNT] = {
	[FLY_UNNAMED_NONE] = "none",
#define UNNAMED(ID, name, text, advice) [FLY_UNNAMED_##ID] = #name,
#include "abi/reasons.def"
};

const char *profile_drop_name(enum fly_drop drop)
{
	return drop < FLY_DROP_COUNT ? drop_names[drop] : "unknown";
}

const char *profile_cut_name(enum fly_cut cut)
{
	return cut < FLY_CUT_COUNT ? cut_names[cut] : "unknown";
}

const char *profile_unnamed_name(enum fly_unnamed unnamed)
{
	return unnamed < FLY_UNNAMED_COUNT ? unnamed_names[unnamed] : "unknown";
}

const struct profile_reason *profile_reason_get(size_t index)
{
	return index < ARRAY_SIZE(reasons) ? &reasons[index] : NULL;
}
