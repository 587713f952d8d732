package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	nodev1 "k8s.io/api/node/v1"
)

// The operator with an API server that has RuntimeClasses in v1beta1 only, as those from
// 1.14 to 1.19 have. That of today no longer has it, so a proxy translates.
func TestOperatorBeta(t *testing.T) {
	needOperator(t)
	c := newCrew(t)
	c.born(t, "old", 2)
	c.standIn(t)
	p := c.startThrough(t, true)
	c.must(t, http.MethodPost, poolPath, aTaintedPool("old", "gvisor"), nil)
	c.ready(t, "old")
	classIs := func(memory string) error {
		var class nodev1.RuntimeClass
		c.must(t, http.MethodGet, classPath+"/gvisor", nil, &class)
		if class.Handler != "runsc" || class.Scheduling == nil || class.Scheduling.NodeSelector[handlerLabel] != "gvisor" || class.Overhead == nil || class.Overhead.PodFixed.Memory().String() != memory {
			return fmt.Errorf("class: %+v", class)
		}
		return nil
	}
	if err := classIs("32Mi"); err != nil {
		t.Error(err)
	}
	c.asks(t, "old", object{"type": "gvisor", "providerConfig": object{"overhead": object{"memory": "48Mi"}}})
	eventually(t, func() error { return classIs("48Mi") })
	c.must(t, http.MethodDelete, classPath+"/gvisor", nil, nil) // which a watch tells of
	eventually(t, func() error {
		if err := c.exists(classPath + "/gvisor"); err != nil {
			return err
		}
		return classIs("48Mi")
	})
	c.must(t, http.MethodDelete, poolPath+"/old", nil, nil)
	c.gone(t, poolPath+"/old", classPath+"/gvisor")
	c.nothingLeft(t, "old")
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if p.Counts()["v1beta1 "+verb] == 0 {
			t.Errorf("no class was asked for by %s: %v", verb, p.Counts())
		}
	}
	if n := p.Counts()["v1"]; n > 0 {
		t.Errorf("classes of a version that is not there were asked for %d times", n)
	}
}
