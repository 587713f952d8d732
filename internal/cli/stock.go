package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/stock"
)

// stockFlags are the settings for images and for what containers leave, by the names
// that they have for a kubelet.
type stockFlags struct {
	stock.Settings
	serial          bool
	verify, logSize string
}

func (f *stockFlags) add(cmd *cobra.Command) {
	f.Settings = stock.Default
	s := cmd.Flags()
	s.IntVar(&f.Parallel, "max-parallel-image-pulls", f.Parallel, "images that are pulled at a time; 0 for any number")
	s.BoolVar(&f.serial, "serialize-image-pulls", false, "pull one image at a time")
	s.IntVar(&f.Rate.PerSecond, "registry-qps", f.Rate.PerSecond, "pulls that begin each second; 0 for any number")
	s.IntVar(&f.Rate.Burst, "registry-burst", f.Rate.Burst, "pulls that may begin at once with --registry-qps, before they are held to that")
	s.StringVar(&f.Providers.Config, "image-credential-provider-config", "", "file of the credential provider plugins, or folder of such files")
	s.StringVar(&f.Providers.Dir, "image-credential-provider-bin-dir", "", "folder of the programs of these plugins")
	s.StringVar(&f.verify, "image-pull-credentials-verification-policy", string(images.NeverVerifyPreloadedImages),
		"images on the node that a pod may use only with credentials for them: NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify")
	s.StringSliceVar(&f.Allowlist, "preloaded-images-verification-allowlist", nil, "images that every pod may use with NeverVerifyAllowlistedImages: NAME or PREFIX/*")
	s.IntVar(&f.Images.HighPercent, "image-gc-high-threshold", f.Images.HighPercent, "percent of the disk of images that may be used before images are removed; 100 for never")
	s.IntVar(&f.Images.LowPercent, "image-gc-low-threshold", f.Images.LowPercent, "percent of that disk that is used after images were removed")
	s.DurationVar(&f.Images.MinAge, "minimum-image-ttl-duration", f.Images.MinAge, "age before which no image is removed")
	s.DurationVar(&f.Images.MaxAge, "image-maximum-gc-age", f.Images.MaxAge, "time after its last use after which an image is removed; 0 for never")
	s.IntVar(&f.Dead.PerPod, "maximum-dead-containers-per-container", f.Dead.PerPod, "ended containers that are kept of each container of a pod")
	s.IntVar(&f.Dead.OfAllPods, "maximum-dead-containers", f.Dead.OfAllPods, "ended containers that are kept of all pods; less than 0 for any number")
	s.StringVar(&f.logSize, "container-log-max-size", f.Logs.MaxSize.String(), "size of the log of a container at which the next file is begun; less than 0 for never")
	s.IntVar(&f.Logs.MaxFiles, "container-log-max-files", f.Logs.MaxFiles, "log files that are kept of each container, at least 2")
	s.IntVar(&f.Logs.Workers, "container-log-max-workers", f.Logs.Workers, "logs of containers that are rotated at a time")
	s.DurationVar(&f.Logs.Every, "container-log-monitor-interval", f.Logs.Every, "time between two looks at the sizes of logs, at least "+stock.LeastLogInterval.String())
	s.DurationVar(&f.Dead.MinAge, "minimum-container-ttl-duration", f.Dead.MinAge, "age before which no ended container is removed")
}

// check says what is wrong with the flags of a command.
func (f *stockFlags) check(cmd *cobra.Command) error {
	f.Verify = images.Verification(f.verify)
	size, err := resource.ParseQuantity(f.logSize)
	f.Logs.MaxSize = size
	switch {
	case err != nil:
		return usageError{fmt.Errorf("--container-log-max-size: %q is no size such as 10Mi", f.logSize)}
	case size.IsZero():
		return usageError{errors.New("--container-log-max-size is 0; a log has at least one byte, and less than 0 is for logs that are not rotated")}
	case f.Logs.MaxFiles < 2:
		return usageError{fmt.Errorf("--container-log-max-files is %d; 2 is the least, one that is written to and one before it", f.Logs.MaxFiles)}
	case f.Logs.Workers < 1:
		return usageError{fmt.Errorf("--container-log-max-workers is %d; 1 is the least", f.Logs.Workers)}
	case f.Logs.Every < stock.LeastLogInterval:
		return usageError{fmt.Errorf("--container-log-monitor-interval is %s; %s is the least", f.Logs.Every, stock.LeastLogInterval)}
	case f.Rate.PerSecond < 0 || f.Rate.Burst < 1:
		return usageError{fmt.Errorf("--registry-qps is %d and --registry-burst %d; the one is 0 or more, the other 1 or more", f.Rate.PerSecond, f.Rate.Burst)}
	case f.Parallel < 0:
		return usageError{errors.New("--max-parallel-image-pulls is less than 0")}
	case f.serial && cmd.Flags().Changed("max-parallel-image-pulls") && f.Parallel != 1:
		return usageError{errors.New("--serialize-image-pulls pulls one image at a time, and --max-parallel-image-pulls asks for another number; leave one of them out")}
	case f.serial:
		f.Parallel = 1
	case (f.Providers.Config == "") != (f.Providers.Dir == ""):
		return usageError{errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir go together")}
	}
	return nil
}
