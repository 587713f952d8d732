package manifest

import (
	"strings"
	"testing"
)

// TestCareRefusals holds what an API server refuses of hooks and probes, and what
// no kubelet could do.
func TestCareRefusals(t *testing.T) {
	const at = "spec.containers[0]."
	for text, want := range map[string]string{
		"livenessProbe: {periodSeconds: 1}":                                                     at + "livenessProbe: must specify a handler type",
		"livenessProbe: {exec: {command: [a]}, grpc: {port: 1}}":                                at + "livenessProbe.grpc: may not specify more than 1 handler type",
		"livenessProbe: {exec: {command: []}}":                                                  at + "livenessProbe.exec.command: is required",
		"livenessProbe: {exec: {command: ['']}}":                                                at + "livenessProbe.exec.command: is required",
		"livenessProbe: {exec: {command: [a]}, successThreshold: 2}":                            at + "livenessProbe.successThreshold: 2: must be 1",
		"startupProbe: {exec: {command: [a]}, successThreshold: 3}":                             at + "startupProbe.successThreshold: 3: must be 1",
		"startupProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: -1}":               at + "startupProbe.terminationGracePeriodSeconds: -1: must be greater than 0",
		"livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}":               at + "livenessProbe.terminationGracePeriodSeconds: 0: must be greater than 0",
		"readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 1}":              at + "readinessProbe.terminationGracePeriodSeconds: must not be set for readinessProbes",
		"readinessProbe: {exec: {command: [a]}, initialDelaySeconds: -1}":                       at + "readinessProbe.initialDelaySeconds: -1: must be greater than or equal to 0",
		"readinessProbe: {exec: {command: [a]}, timeoutSeconds: -2}":                            at + "readinessProbe.timeoutSeconds: -2: must be",
		"readinessProbe: {exec: {command: [a]}, periodSeconds: -3}":                             at + "readinessProbe.periodSeconds: -3: must be",
		"readinessProbe: {exec: {command: [a]}, successThreshold: -4}":                          at + "readinessProbe.successThreshold: -4: must be",
		"readinessProbe: {exec: {command: [a]}, failureThreshold: -5}":                          at + "readinessProbe.failureThreshold: -5: must be",
		"readinessProbe: {exec: {command: [a]}, periodSeconds: often}":                          at + "readinessProbe.periodSeconds: a string does not fit here",
		"readinessProbe: {exec: {command: [a]}, period: 1}":                                     at + "readinessProbe.period: is not a field",
		"readinessProbe: {httpGet: {path: /}}":                                                  at + "readinessProbe.httpGet.port: 0: must be between 1 and 65535",
		"readinessProbe: {httpGet: {port: 65536}}":                                              at + "readinessProbe.httpGet.port: 65536: must be between",
		"readinessProbe: {httpGet: {port: web}}":                                                at + `readinessProbe.httpGet.port: "web" is not the name of a port of this container`,
		"ports: [{name: web, containerPort: 1}], readinessProbe: {httpGet: {port: wep}}":        at + `readinessProbe.httpGet.port: "wep" is not the name`,
		"readinessProbe: {httpGet: {port: '80'}}":                                               at + `readinessProbe.httpGet.port: "80": must contain at least one letter`,
		"readinessProbe: {httpGet: {port: 80, scheme: http}}":                                   at + `readinessProbe.httpGet.scheme: "http" is not one of [HTTP HTTPS]`,
		"readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: a}, {name: 'b c'}]}}":        at + `readinessProbe.httpGet.httpHeaders[1].name: "b c": a valid HTTP header`,
		"readinessProbe: {tcpSocket: {port: none}}":                                             at + `readinessProbe.tcpSocket.port: "none" is not the name`,
		"readinessProbe: {grpc: {port: 0}}":                                                     at + "readinessProbe.grpc.port: 0: must be between",
		"readinessProbe: {grpc: {port: web}}":                                                   at + "readinessProbe.grpc.port: a string does not fit here",
		"lifecycle: {postStart: {sleep: {seconds: 31}}}":                                        at + "lifecycle.postStart.sleep.seconds: 31: must be non-negative and not more than terminationGracePeriodSeconds (30)",
		"lifecycle: {preStop: {sleep: {seconds: -1}}}":                                          at + "lifecycle.preStop.sleep.seconds: -1: must be non-negative",
		"lifecycle: {preStop: {tcpSocket: {port: 80}}}":                                         at + "lifecycle.preStop.tcpSocket: is no hook",
		"lifecycle: {preStop: {httpGet: {port: web}}}":                                          at + `lifecycle.preStop.httpGet.port: "web" is not the name`,
		"lifecycle: {postStart: {exec: {command: [a]}, sleep: {seconds: 1}}}":                   at + "lifecycle.postStart.sleep: may not specify more than 1 handler type",
		"lifecycle: {postStart: {httpGet: null, exec: {}}}":                                     at + "lifecycle.postStart.exec.command: is required",
		"lifecycle: {stopSignal: SIGUSR1}":                                                      at + "lifecycle.stopSignal: not honoured",
		"ports: [{name: a, containerPort: 1}], lifecycle: {postStart: {httpGet: {port: 'a!'}}}": at + `lifecycle.postStart.httpGet.port: "a!": must contain only`,
	} {
		_, err := decode(podHead + "  containers:\n  - {name: c, image: i, " + text + "}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v\nwant %q", text, err, want)
		}
	}
	for _, field := range []string{"livenessProbe: {exec: {command: [a]}}", "startupProbe: {exec: {command: [a]}}", "readinessProbe: {exec: {command: [a]}}", "lifecycle: {preStop: {exec: {command: [a]}}}"} {
		name, _, _ := strings.Cut(field, ":")
		_, err := decode(podHead + "  initContainers: [{name: i, image: i, " + field + "}]\n  containers: [{name: c, image: i}]\n")
		if want := "spec.initContainers[0]." + name + ": may not be set for init containers without restartPolicy Always"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestCare reads all of it, as a person writes it and as a cluster gives it back.
func TestCare(t *testing.T) {
	o, err := decode(podHead + `  terminationGracePeriodSeconds: 40
  initContainers:
  - {name: s, image: i, restartPolicy: Always, startupProbe: {grpc: {port: 9000, service: s}}, lifecycle: {preStop: {sleep: {seconds: 40}}}}
  containers:
  - name: c
    image: i
    ports: [{name: web, containerPort: 8080}]
    startupProbe: {exec: {command: [test, -e, /up]}, failureThreshold: 30, periodSeconds: 1, terminationGracePeriodSeconds: 5}
    livenessProbe: {tcpSocket: {port: web, host: 127.0.0.1}, initialDelaySeconds: 3, timeoutSeconds: 2, successThreshold: 1}
    readinessProbe:
      httpGet: {path: /ready, port: web, scheme: HTTPS, host: localhost, httpHeaders: [{name: Host, value: web.example}]}
      successThreshold: 2
    lifecycle:
      postStart: {httpGet: {port: 8080}}
      preStop: {exec: {command: [sync]}}
`)
	if err != nil {
		t.Fatal(err)
	}
	c := o.Pods[0].Spec.Containers[0]
	if c.ReadinessProbe.HTTPGet.Port.StrVal != "web" || c.LivenessProbe.TCPSocket.Host != "127.0.0.1" || *c.StartupProbe.TerminationGracePeriodSeconds != 5 ||
		c.Lifecycle.PostStart.HTTPGet.Port.IntVal != 8080 || o.Pods[0].Spec.InitContainers[0].Lifecycle.PreStop.Sleep.Seconds != 40 {
		t.Errorf("%+v", c)
	}
}
