/*
 * The workload of the benchmark, and the pause program of its peers: says that
 * it runs, and waits for SIGTERM. It is in C because a process of Go would weigh
 * more than what is measured around it.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void quit(int sig)
{
	(void)sig;
	_exit(0);
}

int main(void)
{
	if (signal(SIGTERM, quit) == SIG_ERR || signal(SIGINT, quit) == SIG_ERR)
		return 1;
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return 1;
	for (;;)
		pause();
}
