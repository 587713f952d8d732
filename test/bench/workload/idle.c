/*
 * The workload of the benchmark, and the pause program of its peers: says that
 * it runs, and waits for SIGTERM. It is in C because a process of Go would weigh
 * more than what is measured around it.
 */
#include <errno.h>
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
	/* gVisor's shim gives a pause program no output, which is no reason to end. */
	if (write(STDOUT_FILENO, "ready\n", 6) == -1 && errno != EBADF)
		return 1;
	for (;;)
		pause();
}
