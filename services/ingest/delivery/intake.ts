import { Inbox, type Fetched } from '../inbox.ts';
import { isAt } from './comparison.ts';
import type { LaneState, Ports, RecordMark } from './ports.ts';

/**
 * What a lane accepts of the client's fetches. Records reach the inbox in order, from the offset that the lane asked
 * for, and only of the log that the ledger knows. So a recreated or shortened topic is noticed; take.ts and
 * comparison.ts then find where the log differs from what is stored.
 */
export class Intake {
  state: LaneState = 'taking';
  inbox = new Inbox(0);
  /**
   * Why the partition must be taken again. 'elsewhere': a fetch from another offset than ours. At the ledger's end stands
   * 'another' record, or none ('missing': take.ts then looks at earlier marks, SeenAtEnd in takeover.ts).
   */
  retake: 'elsewhere' | 'another' | 'missing' | undefined;
  /** the answer to peek() */
  peeked: Fetched | undefined;
  /**
   * The offset that the next offer must be fetched from. An offer from another one comes if the log began again, if its
   * start moved, or if the fetch is older than a rejoin.
   */
  #asked = 0;
  /** the ledger's last record; it must be met again before anything is accepted */
  awaited: RecordMark | undefined;
  readonly #ports: Pick<Ports, 'fetchFrom'>;

  constructor(ports: Pick<Ports, 'fetchFrom'>) {
    this.#ports = ports;
  }

  /** Accepts nothing until open() or peek(). */
  close(): void {
    this.state = 'taking';
    this.retake = undefined;
  }

  /** Accepts records from `next` on. Offsets below `low` are gone from Kafka. */
  open(next: number, low: number, expected: RecordMark | undefined): void {
    this.inbox = new Inbox(next);
    if (low > next) this.inbox.offer({ to: low - 1, records: [] });
    this.state = 'running';
    this.awaited = expected;
    this.#ask(expected === undefined ? this.inbox.end : expected.offset);
  }

  /** Drops what is held. */
  drop(): void {
    this.inbox = new Inbox(this.inbox.next);
  }

  /** Asks for what the log holds at this offset and after it, for a comparison only. */
  peek(at: number): void {
    this.state = 'comparing';
    this.peeked = undefined;
    this.#ask(at);
  }

  offer(fetched: Fetched & { readonly at: number }): boolean {
    const isWanted = this.state === 'running' || (this.state === 'comparing' && this.peeked === undefined);
    if (!isWanted || this.retake !== undefined) return false;
    if (fetched.at !== this.#asked) {
      this.retake = 'elsewhere';
      return false;
    }
    if (this.state === 'comparing') {
      this.peeked = fetched;
      return true;
    }
    this.#asked = fetched.to + 1;
    const expected = this.awaited;
    if (expected !== undefined) {
      const record = fetched.records.find((r) => r.offset === expected.offset);
      this.awaited = undefined;
      if (record === undefined || !isAt(record, expected)) {
        this.retake = record === undefined ? 'missing' : 'another';
        return false;
      }
    }
    this.inbox.offer(fetched);
    return true;
  }

  /** The client skipped offsets without a record, up to this one. True if that is what a comparison asked for. */
  moved(to: number): boolean {
    if (this.state === 'comparing' && this.peeked === undefined && to >= this.#asked) {
      this.peeked = { to, records: [] };
      return true;
    }
    if (this.state !== 'running') return false;
    if (this.awaited !== undefined && this.awaited.offset <= to) this.retake = 'missing';
    else this.#asked = Math.max(this.#asked, to + 1);
    return false;
  }

  #ask(offset: number): void {
    this.#asked = offset;
    this.#ports.fetchFrom(offset);
  }
}
