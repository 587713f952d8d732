/*
 * Starts a thread as the C library does, and says whom it runs as: with a
 * set-user-ID bit, its owner.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *nothing(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;
	int failed = pthread_create(&thread, NULL, nothing, NULL);

	if (failed == 0)
		failed = pthread_join(thread, NULL);
	printf("thread: %s, user: %d\n", strerror(failed), (int)geteuid());
	return failed;
}
