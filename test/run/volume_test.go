package run

import (
	"strings"
	"testing"
)

// TestImageVolumeRefusals wants what cannot be mounted named, and nothing left.
func TestImageVolumeRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		const pod = `
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  volumes: [{name: data, image: {reference: "REFERENCE", pullPolicy: Never}}]
  containers: [{name: c, image: IMAGE, command: [echo, ran], volumeMounts: [{name: data, mountPath: /data, subPath: PART}]}]
`
		for name, tt := range map[string]struct{ reference, part, says string }{
			"not here":     {"localhost/none:1", "bin", "Pod default/a: volume data: image localhost/none:1 is not on this machine and pullPolicy is Never"},
			"no such part": {image, "none/at/all", `ImageVolumeMountFailed: mounts[0].image_sub_path "none/at/all" is not in image`},
			"a file":       {image, "bin/busybox", `"bin/busybox" is no folder in image`},
		} {
			text := strings.NewReplacer("REFERENCE", tt.reference, "PART", tt.part).Replace(pod)
			file := m.write("pod.yaml", fill(text, class))
			r := m.want(1, "run", "-f", m.dir+"/classes.yaml", "-f", file)
			if !strings.Contains(r.err, tt.says) || strings.Contains(r.out, "ran") {
				t.Errorf("%s: %s", name, r.err)
			}
			if ps := m.want(0, "ps", "-o", "json").out; ps != "[]\n" {
				t.Errorf("%s: a pod is left: %s", name, ps)
			}
		}
	})
}
