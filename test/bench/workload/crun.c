/*
 * What containerd starts in place of crun. containerd 2.4 writes specifications
 * of version 1.3.0, and crun before 1.9, which Debian 12 has, takes none above
 * 1.1; so this changes the version in the bundle's config.json, in place, and
 * becomes the program that the link beside it, NAME.real, leads to.

 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void lower(const char *bundle)
{
	static const char from[] = "\"ociVersion\":\"1.3.0\"";
	char path[PATH_MAX], text[256];
	snprintf(path, sizeof path, "%s/config.json", bundle);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return; /* crun says it better */
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	if (n > 0) {
		text[n] = 0;
		char *at = strstr(text, from);
		if (at)
			(void)!pwrite(fd, "1.1.0", 5, at - text + sizeof from - 1 - 6);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	char real[PATH_MAX];
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "--bundle") == 0)
			lower(argv[i + 1]);
	ssize_t n = readlink("/proc/self/exe", real, sizeof real - 6);
	if (n < 0)
		return 125;
	memcpy(real + n, ".real", 6);
	execv(real, argv);
	perror(real);
	return 125;
}
