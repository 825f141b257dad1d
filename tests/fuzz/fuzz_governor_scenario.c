// SPDX-License-Identifier: Apache-2.0
/* Any text as a scenario: what parses is lived through for a while, and every sample accounted for.
 */
#include "governor/governor_sim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct governor_scenario scenario;
	static struct governor_sim sim;
	struct governor_sim_point point;
	struct governor_judge judge;
	struct why why = {""};
	char *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (governor_scenario_parse(text, &scenario, &why)) {
		if (!why.text[0])
			abort();
		free(text);
		return 0;
	}
	free(text);
	governor_judge_init(&judge);
	governor_sim_init(&sim, &scenario, governor_step);
	for (int i = 0; i < 300 && governor_sim_step(&sim, &point); i++)
		governor_judge_look(&judge, &sim, &point);
	if (judge.violations[GOVERNOR_RULE_LEDGER] || judge.violations[GOVERNOR_RULE_NEIGHBOUR])
		abort();
	return 0;
}
