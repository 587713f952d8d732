package signals

import "testing"

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"SIGTERM": "SIGTERM", "term": "SIGTERM", "15": "SIGTERM", "SIGUSR1": "SIGUSR1", "9": "SIGKILL",
		"SIGRTMIN": "SIGRTMIN", "RTMIN+3": "SIGRTMIN+3", "SIGRTMINPLUS3": "SIGRTMIN+3", "37": "SIGRTMIN+3",
		"SIGRTMAX": "SIGRTMAX", "SIGRTMAX-1": "SIGRTMAX-1", "SIGRTMAXMINUS14": "SIGRTMAX-14", "64": "SIGRTMAX", "50": "SIGRTMAX-14", "49": "SIGRTMIN+15",
		"RTMIN+30": "SIGRTMAX", "SIGCLD": "SIGCHLD", "SIGPOLL": "SIGIO", "SIGIOT": "SIGABRT",
		"": "", "0": "", "32": "", "65": "", "-1": "", "SIGFOO": "", "RTMIN+": "", "RTMIN3": "", "RTMIN+31": "", "RTMIN-1": "", "SIGRTMAX+1": "", "SIGRTMIN++1": "",
	} {
		got, ok := Name(in)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q, %t; want %q", in, got, ok, want)
		}
	}
}
