/**
 * What is called back at the end of a turn, once, however often it was asked for. A flag of its own says that it was, as a Set of
 * callbacks that is filled and emptied in every turn leaves a table behind each time.
 */
export class Wake {
  readonly callback: () => void;
  isDue = false;

  constructor(callback: () => void) {
    this.callback = callback;
  }
}
