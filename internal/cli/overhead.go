package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

func (a *app) handlersOverheadCommand() *cobra.Command {
	var req adminv1.OverheadRequest
	var window time.Duration
	cmd := &cobra.Command{
		Use:   "overhead [NAME...]",
		Short: "Measure what pods of runtime handlers take beside their workload",
		Long: "Measure what pods of runtime handlers take beside their workload: of each handler some pods that do\n" +
			"nothing are run at once, watched, and removed. Without names, all handlers are measured, one after the\n" +
			"other. It takes the window and some seconds for each.\n\n" +
			"With -o yaml, RuntimeClass objects with that overhead are printed, ready to be applied: the 99th of a\n" +
			"hundred pods and the share of the node's monitor, rounded up to MiB and thousandths of a processor.\n\n" +
			"A node that is busy meanwhile makes no memory, but some processor time of it.",
		Example: "fairlead handlers overhead\nfairlead handlers overhead -o yaml gvisor | kubectl apply -f -",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			if req.Pods < 1 || req.Pods > adminv1.MaxOverheadPods {
				return usageError{fmt.Errorf("--pods is %d; want 1 to %d", req.Pods, adminv1.MaxOverheadPods)}
			}
			if window < time.Millisecond || window > adminv1.MaxOverheadWindow {
				return usageError{fmt.Errorf("--window is %s; want up to %s", window, adminv1.MaxOverheadWindow)}
			}
			req.Names, req.WindowMS = names, window.Milliseconds()
			return a.with(cmd.Context(), func(s *session) error { return a.overhead(cmd.Context(), s, req) })
		},
	}
	a.outputFlag(cmd)
	cmd.Flags().IntVar(&req.Pods, "pods", 10, fmt.Sprintf("pods to run of each handler, 1 to %d", adminv1.MaxOverheadPods))
	cmd.Flags().DurationVar(&window, "window", 10*time.Second, fmt.Sprintf("how long they are watched, up to %s", adminv1.MaxOverheadWindow))
	return cmd
}

func (a *app) overhead(ctx context.Context, s *session, req adminv1.OverheadRequest) error {
	list, err := adminv1.MeasureOverhead(ctx, s.Conn(), req, func(step string) { _, _ = fmt.Fprintln(a.err, visible(step)) })
	if status.Code(err) == codes.Unimplemented {
		err = fmt.Errorf("%s at %s cannot measure handlers, only Fairlead can: %w", s.Name, s.Address, errdefs.ErrUnimplemented)
	}
	if err != nil {
		return err
	}
	var failed []error
	for i := range list {
		if list[i].Reason != "" {
			failed = append(failed, errors.New("handler "+list[i].Name+" was not measured: "+list[i].Reason))
		}
	}
	if a.output == "yaml" {
		err = a.runtimeClasses(list)
	} else {
		err = a.print(list, func() [][]string { return overheadRows(list) })
	}
	return errors.Join(append(failed, err)...)
}

func overheadRows(list []adminv1.Overhead) [][]string {
	rows := [][]string{{"HANDLER", "PODS", "MEMORY P50", "MEMORY P99", "CPU P50", "CPU P99", "MONITOR", "POD FIXED"}}
	for i := range list {
		o := &list[i]
		if o.Reason != "" {
			rows = append(rows, []string{o.Name, "", "", "", "", "", "", ""})
			continue
		}
		var fixed []string
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := podFixed(o)[name]; ok {
				fixed = append(fixed, string(name)+"="+q.String())
			}
		}
		rows = append(rows, []string{
			o.Name, strconv.Itoa(o.Pods), size(o.MemoryP50), size(o.MemoryP99), thousandths(o.CPUP50), thousandths(o.CPUP99),
			size(o.MonitorMemory) + "," + thousandths(o.MonitorCPU), strings.Join(fixed, ","),
		})
	}
	return rows
}

// thousandths is a share of a processor as Kubernetes writes it, with a digit
// behind the point.
func thousandths(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) + "m" }

// noise is processor time that is not worth to be set aside, in thousandths: a
// node with 110 such pods is wrong by a hundredth of a processor.
const noise = 0.1

// podFixed is what a scheduler is to set aside for a pod, rounded up. It is nil
// where that is nothing.
func podFixed(o *adminv1.Overhead) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu := o.CPUP99 + o.MonitorCPU; cpu >= noise {
		out[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(math.Ceil(cpu)), resource.DecimalSI)
	}
	if memory := o.MemoryP99 + o.MonitorMemory; memory > 0 {
		const mib = 1 << 20
		out[corev1.ResourceMemory] = *resource.NewQuantity((memory+mib-1)/mib*mib, resource.BinarySI)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// runtimeClasses prints an object for each handler that was measured.
func (a *app) runtimeClasses(list []adminv1.Overhead) error {
	for i := range list {
		o := &list[i]
		if o.Reason != "" {
			continue
		}
		class := nodev1.RuntimeClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: nodev1.SchemeGroupVersion.String(), Kind: "RuntimeClass"},
			ObjectMeta: metav1.ObjectMeta{Name: o.Name},
			Handler:    o.Name,
		}
		if fixed := podFixed(o); fixed != nil {
			class.Overhead = &nodev1.Overhead{PodFixed: fixed}
		}
		text, err := yaml.Marshal(class)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "---\n# %d pods without work: memory %s (p50 %s), processor %s (p50 %s), and of the monitor %s, %s\n%s",
			o.Pods, size(o.MemoryP99), size(o.MemoryP50), thousandths(o.CPUP99), thousandths(o.CPUP50),
			size(o.MonitorMemory), thousandths(o.MonitorCPU), text)
		if err != nil {
			return err
		}
	}
	return nil
}
