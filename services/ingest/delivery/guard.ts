import type { Intake } from './intake.ts';
import type { Seat } from './joint.ts';
import type { Ended, Ports, Service } from './ports.ts';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;

/** What every step of a lane passes: is the partition still ours, may it write now, is a failure worth another try. */
export class Guard {
  readonly ports: Ports;
  readonly intake: Intake;
  #release: (() => void) | undefined;

  constructor(ports: Ports, intake: Intake) {
    this.ports = ports;
    this.intake = intake;
  }

  check(): Ended | undefined {
    if (this.ports.isOver()) return 'over';
    return this.intake.retake === undefined ? undefined : 'retake';
  }

  /** The same, for a step that need not be finished when the process stops. */
  checkOrDrain(): Ended | undefined {
    return this.ports.isDraining() ? 'over' : this.check();
  }

  /** Asked right before a write. Undefined if our group owns the partition and this process is surely a member. */
  async fence(): Promise<Ended | undefined> {
    for (;;) {
      const { owner } = await this.ports.store.register();
      if (owner?.group !== this.ports.group) return 'retake';
      if (this.ports.isOver()) return 'over';
      if (this.ports.isMember()) return undefined;
      // then the register is read again: another group may have taken the partition meanwhile
      await this.ports.wait(RETRY_FIRST_MS);
    }
  }

  /** Waits until this process is surely a member: what we write must not arrive long after another became the owner. */
  async asMember(): Promise<Ended | undefined> {
    while (!this.ports.isMember() && !this.ports.isOver()) await this.ports.wait(RETRY_FIRST_MS);
    return this.ports.isOver() ? 'over' : undefined;
  }

  /**
   * 'retake' if the log ends before this offset, or at it: it was recreated, shorter, since it was taken. A fetch of the
   * offset at which it ends returns nothing, and no error.
   */
  async checkLogHas(offset: number | undefined): Promise<Ended | undefined> {
    if (offset === undefined) return undefined;
    const log = await this.persistently('the look at the log', () => this.ports.watermarks());
    if (typeof log === 'string') return log;
    return log.high <= offset ? 'retake' : undefined;
  }

  /**
   * Resolves when the lane holds a write permit. `asked`: one that it waits for already. Pass none while the lane holds
   * one: it would never be released.
   */
  async takePermit(asked?: Promise<() => void>): Promise<void> {
    this.#release ??= await (asked ?? this.ports.permit());
  }

  /** Returns the seat. If the others went without this batch, the batch takes a permit before it is inserted alone. */
  permitted(seat: Seat | undefined): Seat | undefined {
    if (seat === undefined) return undefined;
    return {
      ...seat,
      insert: async (contribution) => {
        if (!seat.isAwaited()) await this.takePermit();
        return await seat.insert(contribution);
      },
    };
  }

  releasePermit(): void {
    this.#release?.();
    this.#release = undefined;
  }

  /**
   * Repeats a step while a service is unavailable, for as long as the lane has its partition. Throws any other error,
   * with what failed.
   */
  async persistently<T>(what: string, step: () => Promise<T>): Promise<T | Ended> {
    const ports = this.ports;
    let service: Service | undefined;
    for (let failures = 0; ; failures++) {
      if (ports.isOver()) return 'over';
      try {
        const result = await step();
        if (service !== undefined) ports.log('available_again', { service, failures });
        return result;
      } catch (error) {
        service = ports.unavailable(error);
        // an outage of an hour is many lines: no stack
        const err = error instanceof Error ? error.message : String(error);
        if (service === undefined) throw new Error(`${what} failed: ${err.split('\n')[0]}`, { cause: error });
        // others can use it meanwhile
        this.releasePermit();
        // half of it is random, so that lanes that failed together do not retry together
        const delay = Math.ceil(Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** failures) * (0.5 + ports.random() / 2));
        ports.log(`${service}_unavailable`, { failures: failures + 1, during: what, err, retry_in_ms: delay });
        await ports.wait(delay);
      }
    }
  }
}
