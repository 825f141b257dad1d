// SPDX-License-Identifier: Apache-2.0
/*
 * pool: requests that move between the threads of a pool. Each has a context of its own, which goes
 * with it: whoever works for the request installs it, and puts back what was there before. Each
 * request is done in two halves, most often by two threads; CPU time as in service.c.
 *
 *	c++ pool.cpp -Iinclude -Lbuild/libcontext -lflyball-context -pthread
 */
#include <flyball/context.h>

#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace
{

constexpr int rounds = 24, workers = 2;

struct Kind {
	const char *route;
	uint64_t cpu_ms;
};
constexpr Kind kinds[] = {{"/fast", 20}, {"/slow", 60}, {"/batch", 120}};

struct Request {
	const Kind *kind;
	flyball_context *context;
	uint8_t number;
	int halves;
};

std::mutex lock;
std::condition_variable changed;
std::deque<Request> queue;
int left = rounds * 3;

void burn_ms(uint64_t ms)
{
	auto now = [] {
		timespec t;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		return uint64_t(t.tv_sec) * 1000000000 + uint64_t(t.tv_nsec);
	};

	for (uint64_t end = now() + ms * 1000000; now() < end;)
		;
}

/* False when the request is done. */
bool work(Request &request)
{
	flyball_context *before = flyball_context_swap(request.context);

	if (request.halves++ == 0) {
		const uint8_t trace_id[16] = {2, request.number}, span_id[8] = {2, request.number};

		flyball_context_enter(trace_id, span_id, 1);
		flyball_context_attribute(0, request.kind->route, strlen(request.kind->route));
	}
	burn_ms(request.kind->cpu_ms / 2);
	if (request.halves == 2)
		flyball_context_leave();
	flyball_context_swap(before);
	return request.halves < 2;
}

void worker()
{
	std::unique_lock<std::mutex> held(lock);

	while (left > 0) {
		if (queue.empty()) {
			changed.wait(held);
			continue;
		}
		Request request = queue.front();
		queue.pop_front();
		held.unlock();
		bool goes_on = work(request);
		held.lock();
		if (goes_on) {
			queue.push_back(request);
		} else {
			flyball_context_free(request.context);
			left--;
		}
		changed.notify_all();
	}
}

} // namespace

int main()
{
	const flyball_attribute resource[] = {{"service.name", "example-cpp"}};
	const char *const keys[] = {"http.route"};
	const flyball_process_context me = {resource, 1, keys, 1};
	std::vector<std::thread> threads;

	if (flyball_process_context_publish(&me))
		return 1;
	for (int i = 0; i < rounds * 3; i++) {
		Request request = {&kinds[i % 3], flyball_context_new(), uint8_t(i), 0};

		if (!request.context)
			return 1;
		queue.push_back(request);
	}
	for (int i = 0; i < workers; i++)
		threads.emplace_back(worker);
	for (auto &thread : threads)
		thread.join();
	return 0;
}
