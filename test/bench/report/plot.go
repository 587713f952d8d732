package report

import (
	"fmt"
	"strings"

	"fairlead.run/test/bench/load"
)

// The plot's measures, in pixels.
const (
	plotWidth  = 900
	labelWidth = 230
	barHeight  = 22
	barGap     = 8
	groupGap   = 46
)

// chart is a group of stacked bars: one for each variant, one part for each call.
type chart struct {
	title, total string
	parts        []string
	colours      []string
}

var charts = []chart{
	{"Pod start, median in ms", load.PodStart, []string{load.RunPod, load.Create, load.StartContainer}, []string{"#2b6cb0", "#90cdf4", "#63b3ed"}},
	{"Stop and remove, median in ms", load.PodEnd, []string{load.StopContainer, load.StopPod, load.RemoveContainer, load.RemovePod}, []string{"#9b2c2c", "#e53e3e", "#feb2b2", "#fc8181"}},
}

// Plot draws how long a pod takes to start and to end, as SVG.
func (r *Result) Plot() string {
	p := &page{r: r}
	var body strings.Builder
	y := 10
	for _, c := range charts {
		y = c.draw(&body, p, y)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, plotWidth, y, plotWidth, y, body.String())
}

// draw returns where the next chart begins.
func (c chart) draw(w *strings.Builder, p *page, y int) int {
	variants := p.variants(Serial)
	longest := 0.0
	for _, v := range variants {
		longest = max(longest, p.sum(c, v))
	}
	if longest == 0 {
		return y
	}
	scale := float64(plotWidth-labelWidth-80) / longest
	y += 16
	fmt.Fprintf(w, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y, c.title)
	x := float64(labelWidth)
	for i, part := range c.parts {
		fmt.Fprintf(w, "<rect x=\"%.0f\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%.0f\" y=\"%d\">%s</text>\n", x, y-10, c.colours[i], x+15, y, part)
		x += 25 + 8*float64(len(part))
	}
	y += 12
	for _, v := range variants {
		fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", labelWidth-8, y+barHeight-6, v)
		x := float64(labelWidth)
		for i, part := range c.parts {
			s, _ := p.r.Find(Key{part, Serial, v})
			fmt.Fprintf(w, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s %s ms</title></rect>\n",
				x, y, s.P50*scale, barHeight, c.colours[i], part, number(s.P50))
			x += s.P50 * scale
		}
		total, _ := p.r.Find(Key{c.total, Serial, v})
		fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x+6, y+barHeight-6, number(total.P50))
		y += barHeight + barGap
	}
	return y + groupGap - barGap - 16
}

// sum is the length of a bar. It is not quite the median of the total.
func (p *page) sum(c chart, variant string) float64 {
	var sum float64
	for _, part := range c.parts {
		s, _ := p.r.Find(Key{part, Serial, variant})
		sum += s.P50
	}
	return sum
}
