import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, compact, timestamp, type Zone } from './format.ts';
import { html, type View } from './html.ts';

export interface Curve {
  readonly label: string;
  readonly values: readonly (number | null)[];
  readonly shape: 'line' | 'bar';
  /** true for the second axis */
  readonly isRight?: boolean;
  /** a colour of the style sheet by its number, or `bad` */
  readonly color?: number | 'bad';
}

interface ChartProps {
  readonly title: string;
  readonly unit: string;
  readonly rightUnit?: string;
  /** unix seconds, ascending */
  readonly times: readonly number[];
  readonly curves: readonly Curve[];
  readonly zone: Zone;
  /** bars are stacked */
  readonly isStacked?: boolean;
  /** for values of many magnitudes; 0 is drawn at the bottom */
  readonly isLogarithmic?: boolean;
  readonly show?: (value: number) => string;
  readonly showRight?: (value: number) => string;
  readonly empty?: string;
  readonly height?: number;
}

/** The element of a plot. Tests read the drawn curves from it. */
export interface ChartElement extends HTMLElement {
  plot?: uPlot;
}

const COLORS = 9;
const HEIGHT = 190;
const FOOT = 0.001;
const LONG_SECONDS = 20 * 3600;
/** of one bucket, whose width is unknown */
const LONE_STEP_SECONDS = 60;
/** uPlot's enums exist only as types, so their numbers are repeated here. */
const LOGARITHMIC = { distr: 3 } as object as Pick<uPlot.Scale, 'distr'>;
const RIGHT = { side: 1 } as object as Pick<uPlot.Axis, 'side'>;

/**
 * Draws curves over time. The legend shows the values under the pointer, else the latest ones; a click on a name hides
 * its curve.
 */
export function Chart(props: ChartProps): View {
  const { title, unit, curves, times, zone, isStacked = false, isLogarithmic = false, height = HEIGHT } = props;
  const host = useRef<ChartElement>(null);
  const [at, setAt] = useState<number | undefined>(undefined);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const theme = useTheme();
  const isEmpty = times.length === 0 || curves.every((c) => c.values.every((v) => v === null));
  const shape = JSON.stringify([
    curves.map((c) => [c.label, c.shape, c.isRight, c.color, hidden.has(c.label)]),
    zone,
    theme,
    isStacked,
    isLogarithmic,
    isEmpty,
    unit,
    height,
    spacingOf(times),
  ]);

  useEffect(() => {
    const element = host.current;
    if (element === null || isEmpty) return undefined;
    const made = new uPlot(options(props, hidden, element.clientWidth, setAt), dataOf(props, hidden), element);
    element.plot = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      delete element.plot;
    };
  }, [shape]);

  useEffect(() => {
    host.current?.plot?.setData(dataOf(props, hidden));
  }, [times, curves]);

  const index = at ?? lastKnown(curves);
  const toggle = (label: string): void =>
    setHidden((before) => new Set(before.has(label) ? [...before].filter((l) => l !== label) : [...before, label]));
  return html`<figure class="chart">
    <figcaption>
      <span class="title">${title}</span
      ><span class="quiet">${unit}${props.rightUnit !== undefined && `, ${props.rightUnit}`}</span>
      <span class="quiet when"
        >${!isEmpty && at !== undefined && times[at] !== undefined && clock(times[at] * 1000, zone)}</span
      >
    </figcaption>
    ${
      isEmpty
        ? html`<div class="nothing">${props.empty ?? 'Nothing in the last hour.'}</div>`
        : html`<div class="plot" ref=${host} role="img" aria-label=${describe(props)}></div>
            <${Legend} of=${props} index=${index} hidden=${hidden} onToggle=${toggle} />`
    }
  </figure>`;
}

function Legend({
  of,
  index,
  hidden,
  onToggle,
}: {
  readonly of: ChartProps;
  readonly index: number;
  readonly hidden: ReadonlySet<string>;
  readonly onToggle: (label: string) => void;
}): View {
  return html`<ul class="legend">
              ${of.curves.map(
                (c, i) =>
                  html`<li key=${c.label}>
                    <button
                      type="button"
                      aria-pressed=${!hidden.has(c.label)}
                      class=${`curve ${colorClass(c, i)}`}
                      onClick=${() => onToggle(c.label)}
                    >
                      <i></i>${c.label}<b
                        >${valueText(of, c, index)}</b
                      >
                    </button>
                  </li>`,
              )}
            </ul>`;
}

function valueText({ show = compact, showRight = compact }: ChartProps, { values, isRight }: Curve, i: number): string {
  const value = values[i] ?? null;
  return value === null ? '–' : (isRight === true ? showRight : show)(value);
}

const colorClass = (c: Curve, i: number): string => (c.color === 'bad' ? 'bad' : `c${(c.color ?? i) % COLORS}`);

function lastKnown(curves: readonly Curve[]): number {
  return Math.max(0, ...curves.map((c) => c.values.findLastIndex((v) => v !== null)));
}

/** Returns what the picture shows, for readers who do not see it. */
function describe(props: ChartProps): string {
  const { title, unit, curves, times, zone } = props;
  const i = lastKnown(curves);
  const time = times[i];
  const of = curves.map((c) => `${c.label} ${valueText(props, c, i)}`).join(', ');
  return `${title} (${unit})${time === undefined ? '' : `, latest at ${timestamp(time * 1e6, zone)}`}: ${of}`;
}

function useTheme(): boolean {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const [isDark, setIsDark] = useState(query.matches);
  useEffect(() => {
    const onChange = (): void => setIsDark(query.matches);
    query.addEventListener('change', onChange);
    return () => query.removeEventListener('change', onChange);
  }, []);
  return isDark;
}

/** Returns the curves in drawing order: of a stack the highest first, so the others are drawn over it. */
function drawn(
  { curves, isStacked = false }: ChartProps,
  hidden: ReadonlySet<string>,
): { curve: Curve; index: number; values: (number | null)[] }[] {
  let below: readonly number[] = [];
  const all = curves
    .map((curve, index) => ({ curve, index }))
    .filter(({ curve }) => !hidden.has(curve.label))
    .map(({ curve, index }) => {
      if (!isStacked || curve.shape !== 'bar') return { curve, index, values: [...curve.values] };
      const values = curve.values.map((v, i) => (v ?? 0) + (below[i] ?? 0));
      below = values;
      return { curve, index, values };
    });
  return isStacked ? all.toReversed() : all;
}

/** Returns what a plot takes from the times when it is made, so a plot of other times must be made anew. */
function spacingOf(times: readonly number[]) {
  const [first = 0, second = first + LONE_STEP_SECONDS] = times;
  return { step: second - first, isLong: (times.at(-1) ?? 0) - first > LONG_SECONDS, isSparse: times.length < 70 };
}

function dataOf(props: ChartProps, hidden: ReadonlySet<string>): uPlot.AlignedData {
  const foot = (v: number | null): number | null =>
    props.isLogarithmic === true && v !== null ? Math.max(v, FOOT) : v;
  return [[...props.times], ...drawn(props, hidden).map(({ values }) => values.map(foot))] as uPlot.AlignedData;
}

function options(
  props: ChartProps,
  hidden: ReadonlySet<string>,
  width: number,
  onIndex: (index: number | undefined) => void,
): uPlot.Options {
  const { zone, isStacked = false, isLogarithmic = false, height = HEIGHT } = props;
  const style = getComputedStyle(document.documentElement);
  const variable = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const curves = drawn(props, hidden);
  const hasRight = curves.some(({ curve }) => curve.isRight);
  const { step, isSparse } = spacingOf(props.times);
  return {
    width,
    height,
    padding: [8, hasRight ? 0 : 8, 0, 0],
    ...(zone === 'utc' && { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC') }),
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
    hooks: { setCursor: [(u) => onIndex(u.cursor.idx ?? undefined)] },
    scales: {
      // half a bucket on both sides, so the first and the last bar are complete
      x: {
        time: true,
        range: (u, min, max) => {
          // uPlot makes a span of years of a single time
          const isAlone = u.data[0].length === 1;
          const margin = isAlone || curves.some(({ curve }) => curve.shape === 'bar') ? step / 2 : 0;
          return [min - margin, (isAlone ? min : max) + margin];
        },
      },
      y: isLogarithmic
        ? { ...LOGARITHMIC, range: (_u, min, max) => [Math.max(FOOT, min / 2), Math.max(max * 2, 1)] }
        : { range: (_u, _min, max) => [0, Math.max(max * 1.08, max === 0 ? 1 : 0)] },
      ...(hasRight && {
        right: {
          range: (_u: uPlot, _min: number | null, max: number | null): [number, number] => [0, (max ?? 0) * 1.08 || 1],
        },
      }),
    },
    axes: axesOf(props, hasRight, variable),
    series: [
      {},
      ...curves.map(({ curve, index }) => ({
        label: curve.label,
        scale: curve.isRight === true ? 'right' : 'y',
        stroke: variable(colorClass(curve, index)),
        width: curve.shape === 'bar' ? 0 : 1.5,
        spanGaps: false,
        points: { show: curve.shape === 'line' && isSparse, size: 4 },
        ...(curve.shape === 'bar' && {
          fill: variable(colorClass(curve, index)),
          // without a stack a later bar is narrower, so it hides none
          paths: uPlot.paths.bars!({ size: isStacked ? [0.8, 60] : [0.8 / (1 + index / 2), 60 / (1 + index / 2)] }),
        }),
      })),
    ],
  };
}

function axesOf(props: ChartProps, hasRight: boolean, variable: (name: string) => string): uPlot.Axis[] {
  const { isLogarithmic = false, show = compact, showRight = compact } = props;
  const axis = {
    stroke: variable('quiet'),
    grid: { stroke: variable('grid'), width: 1 },
    ticks: { show: false },
    font: `11px ${variable('font')}`,
  };
  // shows dates only if the curves cross midnight over a long span
  const date = spacingOf(props.times).isLong ? '\n{MMM} {D}' : null;
  const powers = (_u: uPlot, splits: number[]): (number | null)[] =>
    splits.map((v) => (Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null));
  return [
    {
      ...axis,
      space: 70,
      size: date === null ? 26 : 42,
      values: [
        [86_400, '{MMM} {D}', null, null, null, null, null, null, 1],
        [60, '{HH}:{mm}', date, null, date, null, null, null, 1],
        [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1],
      ],
    },
    {
      ...axis,
      size: 58,
      values: (_u, splits) => splits.map((v) => (v === null ? '' : show(v))),
      ...(isLogarithmic && { filter: powers, grid: { ...axis.grid, filter: powers } }),
    },
    ...(hasRight
      ? [
          {
            ...axis,
            scale: 'right',
            ...RIGHT,
            size: 58,
            grid: { show: false },
            values: (_u: uPlot, splits: number[]) => splits.map((v) => showRight(v)),
          },
        ]
      : []),
  ];
}
